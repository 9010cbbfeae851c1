package wire

import (
	"encoding/json"
	"strconv"

	"github.com/warmring/warmring/ring/prompt"
)

// ErrorBody returns an error answer in family f's JSON shape (application/json). Paths of no family get the OpenAI
// shape, which all engines speak. code is the machine-readable name ("model_not_found"); "" leaves it null, and
// messages has no place for it. message is cut to 2 KB and need not be valid UTF-8.
//
// It is for errors of the proxy's own making: an engine's error passes as it is (C175, C176).
func ErrorBody(f prompt.Family, status int, code, message string) []byte {
	b := make([]byte, 0, 256+len(message))
	if f == prompt.Messages {
		return appendMessagesError(b, status, message)
	}
	if code == "" {
		return appendOpenAIError(b, status, nil, message)
	}
	return appendOpenAIError(b, status, appendText(nil, code), message)
}

// ErrorEvent returns the event that tells a client its stream has died (C044). It is not a final event: no
// [DONE] and no finish reason follow, and the connection is to be broken after it, because most SDKs take a stream
// that ends cleanly as complete.
//
// In a chat or completions stream an empty code becomes the status as a number, as engines have it, so that a proxy
// in front of this one reads the same status. For responses, Sniffer.ErrorEvent knows the stream's id and numbering.
func ErrorEvent(f prompt.Family, status int, code, message string) []byte {
	return appendErrorEvent(nil, f, status, code, message, "resp_failed", 0)
}

// ErrorEvent is like the function, for the stream that s has read: it has the response's id and the next sequence
// number, and if the stream broke off inside an event, it closes that one first. A client then meets broken JSON before
// this event, which is an error, too; who would rather have it meet a broken connection asks AtBoundary first.
func (s *Sniffer) ErrorEvent(status int, code, message string) []byte {
	var b []byte
	if !s.AtBoundary() {
		b = append(b, "\n\n"...)
	}
	id := "resp_failed"
	if s.nid > 0 {
		id = string(s.id[:s.nid])
	}
	return appendErrorEvent(b, s.family, status, code, message, id, s.seen)
}

func appendErrorEvent(b []byte, f prompt.Family, status int, code, message, id string, sequence int) []byte {
	switch f {
	case prompt.Messages:
		b = append(b, "event: error\ndata: "...)
		b = appendMessagesError(b, status, message)
	case prompt.Responses:
		if code == "" {
			code = responsesCode(status)
		}
		// All fields that the SDKs' models require, so that building the typed object cannot fail (tried with openai-python 3.57.0).
		b = append(b, "event: response.failed\ndata: "...)
		b = append(b, `{"type":"response.failed","sequence_number":`...)
		b = strconv.AppendInt(b, int64(sequence), 10)
		b = append(b, `,"response":{"id":"`...)
		b = append(b, id...) // as it was in the stream, still escaped
		b = append(b, `","object":"response","created_at":0,"status":"failed","error":{"code":`...)
		b = appendText(b, code)
		b = append(b, `,"message":`...)
		b = appendText(b, message)
		b = append(b, `},"incomplete_details":null,"instructions":null,"metadata":{},"model":"","output":[],`...)
		b = append(b, `"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,"usage":null}}`...)
	default:
		b = append(b, "data: "...)
		value := strconv.AppendInt(nil, int64(status), 10)
		if code != "" {
			value = appendText(nil, code)
		}
		b = appendOpenAIError(b, status, value, message)
	}
	return append(b, "\n\n"...)
}

func appendOpenAIError(b []byte, status int, code []byte, message string) []byte {
	b = append(b, `{"error":{"message":`...)
	b = appendText(b, message)
	b = append(b, `,"type":"`...)
	b = append(b, openAIType(status)...)
	b = append(b, `","param":null,"code":`...)
	if code == nil {
		code = []byte("null")
	}
	b = append(b, code...)
	return append(b, `}}`...)
}

func appendMessagesError(b []byte, status int, message string) []byte {
	b = append(b, `{"type":"error","error":{"type":"`...)
	b = append(b, messagesType(status)...)
	b = append(b, `","message":`...)
	b = appendText(b, message)
	return append(b, `}}`...)
}

func openAIType(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 408, 504:
		return "timeout_error"
	case 429:
		return "rate_limit_error"
	case 501:
		return "not_implemented_error"
	case 503, 529:
		return "overloaded_error"
	}
	if status >= 400 && status < 500 {
		return "invalid_request_error"
	}
	return "server_error"
}

func messagesType(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 408, 504:
		return "timeout_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503, 529:
		return "overloaded_error"
	}
	if status >= 400 && status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

// responsesCode is the code of a failed response: the SDKs' models have a closed list of them. A client such as Codex
// tries again on server_error.
func responsesCode(status int) string {
	switch {
	case status == 429:
		return "rate_limit_exceeded"
	case status >= 400 && status < 500:
		return "invalid_prompt"
	}
	return "server_error"
}

// appendText appends text as a JSON string, at most messageLimit bytes of it.
func appendText(b []byte, text string) []byte {
	quoted, _ := json.Marshal(bounded(text, messageLimit)) // a string always marshals; bad UTF-8 becomes U+FFFD
	return append(b, quoted...)
}
