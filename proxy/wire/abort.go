package wire

import (
	"bytes"

	"github.com/warmring/warmring/ring/prompt"
)

// Ending is what a complete answer says about how it ended.
type Ending uint8

// The endings that matter to somebody who has told the engine to abort.
const (
	EndedWhole   Ending = iota // the model's: the answer is whole
	EndedAborted               // an abort's: the answer is not what the model would have said
	EndedUnclear               // either: the engine has no word for aborts in this family
)

// EndingOf reads the ending of a complete JSON answer of SGLang, status 200, from the members that tell it (never from
// text). What is not understood is EndedUnclear.
//
//   - chat, completions: finish_reason is "abort" in one of the choices.
//   - responses: the status is "failed"; "completed" with no prompt counted in versions that have no such status.
//   - messages: stop_reason is "end_turn" for an abort too. Without a prompt counted in the usage it was one, before its
//     first token; with one, any other stop reason proves the answer, and end_turn proves nothing.
//
// Source: SGLang 0.5.23, entrypoints/openai/serving_responses.py (_status_from_finish_reason), entrypoints/anthropic/serving.py
// (STOP_REASON_MAP), managers/tokenizer_manager.py (_handle_abort_req, which counts no prompt).
func EndingOf(f prompt.Family, answer []byte) Ending {
	switch f {
	case prompt.Chat, prompt.Completions:
		return choicesEnding(answer)
	case prompt.Messages, prompt.Responses:
		return statedEnding(f, answer)
	}
	return EndedUnclear
}

func choicesEnding(answer []byte) Ending {
	top := membersOf(answer, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		if string(key) != "choices" || top.kind() != '[' {
			continue
		}
		ending := EndedUnclear
		for at := skipSpace(answer, top.value+1); at < len(answer) && answer[at] == '{'; {
			choice := membersOf(answer, at)
			for key, ok := choice.next(); ok; key, ok = choice.next() {
				if string(key) != "finish_reason" || choice.kind() != '"' {
					continue
				}
				if string(choice.text()) == "abort" {
					return EndedAborted
				}
				ending = EndedWhole
			}
			if at = skipValue(answer, at); at < 0 {
				return EndedUnclear
			}
			if at = skipSpace(answer, at); at < len(answer) && answer[at] == ',' {
				at = skipSpace(answer, at+1)
			}
		}
		return ending
	}
	return EndedUnclear
}

func statedEnding(f prompt.Family, answer []byte) Ending {
	word := []byte("stop_reason")
	if f == prompt.Responses {
		word = []byte("status")
	}
	var t tally
	t.reset()
	var said []byte
	top := membersOf(answer, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		switch {
		case bytes.Equal(key, word) && top.kind() == '"':
			said = top.text()
		case string(key) == "usage" && top.kind() == '{':
			t.readUsage(top.object())
		}
	}
	switch string(said) {
	case "":
		return EndedUnclear
	case "failed", "cancelled":
		return EndedAborted
	}
	if t.usage().Prompt < 0 {
		return EndedAborted // a real answer has a prompt
	}
	if f == prompt.Messages && string(said) == "end_turn" {
		return EndedUnclear
	}
	return EndedWhole
}

// SaysError tells that a whole JSON answer names an error, whatever its status; so does an answer that is no JSON object.
func SaysError(answer []byte) bool {
	top := membersOf(answer, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		if string(key) == "error" && !top.empty() {
			return true
		}
	}
	return top.broken
}
