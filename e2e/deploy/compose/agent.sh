#!/bin/sh
# An agent of five turns. Each prints which proxy served it, which engine answered and why, and what was predicted to be warm
# of how many prompt tokens. Needs nothing but a shell and curl.
#
#   BASE_URL=http://127.0.0.1:8080 sh agent.sh [SESSION]
set -eu
session=${1:-agent-$$}
base=${BASE_URL:-http://127.0.0.1:8080}

# A prompt of some thousand tokens, as agents have from their first turn on.
system="You are agent $session. "
i=0
while [ $i -lt 300 ]; do
    system="${system}Rule $i of $session: read before you write, and test what you wrote. "
    i=$((i + 1))
done
history="{\"role\":\"system\",\"content\":\"$system\"}"

turn=1
while [ $turn -le 5 ]; do
    history="$history,{\"role\":\"user\",\"content\":\"Turn $turn: do the next step.\"}"
    # The body goes through standard input: an argument would be too long one day.
    headers=$(printf '{"model":"sim","max_tokens":8,"messages":[%s]}' "$history" |
        curl -sS --fail-with-body -o /dev/null -D - "$base/v1/chat/completions" \
            -H 'content-type: application/json' -H "x-session-id: $session" --data-binary @-)
    field() { printf '%s' "$headers" | tr -d '\r' | sed -n "s/^$1: //Ip"; }
    printf 'turn %s: proxy %-20s engine %-10s reason %-8s warm %s\n' "$turn" "$(field x-served-by)" \
        "$(field x-warmring-engine)" "$(field x-warmring-reason)" "$(field x-warmring-warm)"
    history="$history,{\"role\":\"assistant\",\"content\":\"Done with step $turn.\"}"
    turn=$((turn + 1))
done
