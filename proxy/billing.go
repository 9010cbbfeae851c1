package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/warmring/warmring/ring/prompt"
)

// billingName begins the line that Claude Code puts into the first system block.
// It changes with each request, and an engine that keeps it in the prompt misses
// its cache from the first token on.
const billingName = "x-anthropic-billing-header:"

// spliceBilling takes the billing line out of the system field of a Messages
// body, if the operator wants it (identity.strip_billing_line). The same name in
// anybody's text is left alone.
func (r *request) spliceBilling() {
	sc := r.scratch
	if !r.settings.Identity.StripBillingLine || sc.prompt.Family != prompt.Messages {
		return
	}
	if start, end := billingSpan(r.body, sc.prompt.System()); end > start {
		sc.splices.add(start, end, nil)
	}
}

// billingSpan finds the billing line in a system value: the first line of a
// string, or of the first text block that has one; a block of that line alone
// goes whole, with the comma beside it. Empty if there is none.
func billingSpan(body []byte, system prompt.Span) (start, end int) {
	value := body[system.Start:system.End]
	if !bytes.Contains(value, []byte(billingName)) {
		return 0, 0
	}
	if value[0] == '"' {
		n := billingLine(value)
		return system.Start + 1, system.Start + 1 + n
	}
	d := json.NewDecoder(bytes.NewReader(value))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return 0, 0
	}
	before := -1 // the end of the block before
	for d.More() {
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return 0, 0
		}
		to := int(d.InputOffset())
		from := to - len(raw)
		if at, n, whole := billingBlock(raw); n > 0 {
			if !whole {
				return system.Start + from + at, system.Start + from + at + n
			}
			if d.More() {
				for to < len(value) && value[to] != ',' {
					to++
				}
				to++
			} else if before >= 0 {
				from = before
			}
			return system.Start + from, system.Start + to
		}
		before = to
	}
	return 0, 0
}

// billingBlock finds the line in one block: n bytes at at. whole tells that the
// block has no other text.
func billingBlock(block []byte) (at, n int, whole bool) {
	d := json.NewDecoder(bytes.NewReader(block))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, false
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return 0, 0, false
		}
		if key == "text" && len(raw) > 2 && raw[0] == '"' {
			if n = billingLine(raw); n > 0 {
				return int(d.InputOffset()) - len(raw) + 1, n, n == len(raw)-2
			}
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// billingLine is the length of the billing line at the beginning of a quoted
// string's content, its escaped newline included; 0 if it begins otherwise.
func billingLine(quoted []byte) int {
	content := quoted[1 : len(quoted)-1]
	if !bytes.HasPrefix(content, []byte(billingName)) {
		return 0
	}
	for i := 0; i+1 < len(content); i++ {
		if content[i] != '\\' {
			continue
		}
		if content[i+1] == 'n' {
			return i + 2
		}
		i++
	}
	return len(content)
}
