"""turns.py BASE_URL MODEL MODE [BLANKS]: openai-python and anthropic-python hold conversations of several turns.

MODE is how a tool call comes about: "directive" asks a simulated engine for it in the prompt; "forced" makes a real engine
write one under a grammar (BLANKS: a JSON list of the tokens it must not write, or it would write blanks for ever). Prints one JSON object a line for each request: api, turn, engine, session, text, tool, prompt, cached.
"""
import json
import sys

import anthropic
import openai

base, model, mode = sys.argv[1:4]
bias = {str(i): -100 for i in json.load(open(sys.argv[4]))} if len(sys.argv) > 4 else None
client = openai.OpenAI(base_url=base + "/v1", api_key="sk-local", max_retries=0, timeout=60)
claude = anthropic.Anthropic(base_url=base, api_key="sk-local", max_retries=0, timeout=60)
shell = {"type": "function", "function": {"name": "shell", "description": "Run a command.", "strict": True, "parameters": {
    "type": "object", "properties": {"command": {"type": "string", "enum": ["ls", "pwd"]}}, "required": ["command"], "additionalProperties": False}}}
system = "You are a careful agent in Python. " + "Look at the files before you say what is in them. " * 40


def tell(api, turn, headers, text, usage, tool=None):
    def at(o, *names):
        for n in names:
            o = getattr(o, n, None)
        return o
    prompt = at(usage, "prompt_tokens") or at(usage, "input_tokens")
    cached = at(usage, "prompt_tokens_details", "cached_tokens")
    if cached is None:
        cached = at(usage, "input_tokens_details", "cached_tokens")
    if cached is None and at(usage, "cache_read_input_tokens") is not None:
        cached = usage.cache_read_input_tokens
        prompt = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
    print(json.dumps({"client": "openai-python " + openai.__version__ if api != "messages" else "anthropic-python " + anthropic.__version__,
                      "api": api, "turn": turn, "engine": headers.get("x-warmring-engine", ""), "session": headers.get("x-warmring-session", ""),
                      "text": text, "tool": tool, "prompt": prompt, "cached": cached}), flush=True)


def chat(messages, turn, stream, **more):
    """One request; the assistant's message and its tool calls."""
    if stream:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=12 if more.get("tool_choice") == "none" else 200, stream=True,
                                                               stream_options={"include_usage": True}, **more)
        text, calls, usage = "", {}, None
        for chunk in raw.parse():
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for c in choice.delta.tool_calls or []:
                    call = calls.setdefault(c.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                    call["id"] = c.id or call["id"]
                    call["function"]["name"] += c.function.name or ""
                    call["function"]["arguments"] += c.function.arguments or ""
        calls = list(calls.values())
    else:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=12 if more.get("tool_choice") == "none" else 200, **more)
        answer = raw.parse()
        message, usage = answer.choices[0].message, answer.usage
        text, calls = message.content or "", [c.model_dump(exclude_none=True) for c in message.tool_calls or []]
    tell("chat", turn, raw.headers, text, usage, [c["function"] for c in calls])
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}, calls


def chat_turns():
    messages, turn = [{"role": "system", "content": system}], 0
    for question in range(3):
        ask = f"Question {question + 1}: what is here?"
        more = {}
        if question == 1 and mode == "directive":
            ask += ' [[call shell {"command":"ls"}]]'
            more = {"tools": [shell]}
        else:
            more = {"tools": [shell], "tool_choice": "none"}
        if question == 1 and mode == "forced":
            more = {"tools": [shell], "tool_choice": {"type": "function", "function": {"name": "shell"}}, "logit_bias": bias, "seed": 1}
        messages.append({"role": "user", "content": ask})
        for _ in range(4):
            turn += 1
            message, calls = chat(messages, turn, turn % 2 == 0, **more)
            messages.append(message)
            for call in calls:
                assert call["function"]["name"] == "shell", call
                assert json.loads(call["function"]["arguments"])["command"] in ("ls", "pwd"), call
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "a.txt b.txt"})
            if not calls:
                break
            if mode == "forced":
                more = {"tools": [shell], "tool_choice": "none"}


def responses_turns():
    items = []
    for turn in range(1, 4):
        items.append({"role": "user", "content": f"Question {turn}: " + "tell me more about the files. " * 20})
        raw = client.responses.with_raw_response.create(model=model, instructions=system, input=items, max_output_tokens=12, stream=turn % 2 == 0)
        answer = raw.parse()
        if turn % 2 == 0:
            text, usage = "", None
            for event in answer:
                if event.type == "response.output_text.delta":
                    text += event.delta
                elif event.type in ("response.completed", "response.incomplete"):
                    usage = event.response.usage
        else:
            text, usage = answer.output_text, answer.usage
        tell("responses", turn, raw.headers, text, usage)
        items.append({"role": "assistant", "content": text})


def messages_turns():
    messages = []
    for turn in range(1, 4):
        messages.append({"role": "user", "content": f"Question {turn}: " + "tell me more about these files. " * 20})
        if turn % 2 == 0:
            with claude.messages.stream(model=model, system=system, messages=messages, max_tokens=12) as stream:
                answer, headers = stream.get_final_message(), stream.response.headers
        else:
            raw = claude.messages.with_raw_response.create(model=model, system=system, messages=messages, max_tokens=12)
            answer, headers = raw.parse(), raw.headers
        text = "".join(part.text for part in answer.content if part.type == "text")
        tell("messages", turn, headers, text, answer.usage)
        messages.append({"role": "assistant", "content": text})


chat_turns()
responses_turns()
messages_turns()
