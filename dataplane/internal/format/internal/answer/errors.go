package answer

import (
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// IsErrorText reports whether a member with this name holds the text or the code of an error that is written without
// a member "error", as in {"message":"…","code":402} or {"detail":"…"}.
func IsErrorText(name []byte) bool {
	switch string(name) {
	case "message",
		"msg",
		"detail",
		"errors",
		"code",
		"error_code",
		"error_message",
		"error_msg",
		"err_msg",
		"errmsg",
		"errorMessage",
		"base_resp":
		return true
	}
	return false
}

// IsReason reports whether a value is the reason for which an answer, or a choice of one, has ended. Some servers send an
// empty one until then.
func IsReason(value []byte) bool {
	return jsonspan.KindOf(value) == jsonspan.KindString && string(value) != `""`
}

// FindError searches the data of an event for an error. explicit is true if the data can be nothing else: they are no
// object, or have a member that names an error. flat is true if they have a text or code of an error, which is an error
// only if the event is none of the format's own.
func FindError(data []byte) (explicit, flat bool) {
	if !isObject(data) {
		return true, false
	}
	for name, value := range jsonspan.Members(data) {
		switch string(name) {
		case "error":
			explicit = explicit || IsError(value)
		case "object":
			explicit = explicit || string(value) == `"error"`
		default:
			flat = flat || IsErrorText(name) && IsSet(value)
		}
	}
	return explicit, flat
}

// IsSet reports whether a value says that something went wrong: it is not null, false, zero or empty, and if it is an
// object, it has a member status_code that is not zero.
func IsSet(value []byte) bool {
	switch string(value) {
	case `null`, `false`, `0`, `""`, `"0"`, `[]`, `{}`:
		return false
	}
	if jsonspan.KindOf(value) != jsonspan.KindObject {
		return true
	}
	code, ok := jsonspan.Find(value, "status_code")
	return ok && jsonspan.KindOf(code) != jsonspan.KindObject && IsSet(code)
}

// maxErrorDepth bounds how deep an error is searched. Each level is read again by the one above it, so an error that a
// provider nests a hundred thousand times would take minutes of a core.
const maxErrorDepth = 8

// IsError reports whether the value of a member "error" says that something went wrong. Servers that always write the member fill
// it with null, with an empty value, or with an object whose members are all empty. What lies deeper than maxErrorDepth says
// something.
func IsError(value []byte) bool { return isError(value, maxErrorDepth) }

func isError(value []byte, depth int) bool {
	if jsonspan.KindOf(value) != jsonspan.KindObject {
		return IsSet(value) && jsonspan.KindOf(value) != jsonspan.KindNull
	}
	if depth == 0 {
		return true
	}
	for _, member := range jsonspan.Members(value) {
		if isError(member, depth-1) {
			return true
		}
	}
	return false
}

// isObject reports whether text begins with an object, perhaps after white space.
func isObject(text []byte) bool {
	i := jsonspan.SkipSpace(text, 0)
	return i < len(text) && text[i] == '{'
}

// appendOwnWords appends an error of the provider to dst. Of an answer or of a part of one it appends only the members
// in which a provider explains a failure, because all others repeat the request or carry output: whoever writes a
// prompt must not decide how the failure is classified. An answer may be inside of an event, and that inside of a frame of
// the server, but not deeper than maxErrorDepth.
func appendOwnWords(dst, raw []byte) []byte { return appendOwnWordsAt(dst, raw, maxErrorDepth) }

func appendOwnWordsAt(dst, raw []byte, depth int) []byte {
	if isStream, _ := sse.Begins(raw); isStream {
		return appendOwnEvents(dst, raw)
	}
	if !isObject(raw) {
		return append(dst, raw...)
	}

	isAnswer, response := false, []byte(nil)
	for name, value := range jsonspan.Members(raw) {
		switch kind := jsonspan.KindOf(value); string(name) {
		case "choices", "output", "content":
			isAnswer = isAnswer || kind == jsonspan.KindArray
		case "tools", "instructions", "delta", "item", "part":
			isAnswer = true
		case "object":
			isAnswer = isAnswer || string(value) == `"response"`
		case "response", "message":
			if kind == jsonspan.KindObject {
				response = value
			}
		}
	}

	switch {
	case isAnswer:
	case response != nil && depth > 0:
		return appendOwnWordsAt(dst, response, depth-1)
	default:
		return append(dst, raw...)
	}

	dst = append(dst, '{')
	for name, value := range jsonspan.Members(raw) {
		switch {
		case string(name) == "x_groq": // it has usage, too
			inner, ok := jsonspan.Find(value, "error")
			if !ok {
				continue
			}
			name, value = []byte("error"), inner
		case string(name) == "choices": // they have output, too
			inner := choiceError(value)
			if inner == nil {
				continue
			}
			name, value = []byte("error"), inner
		case !explainsFailure(name, value):
			continue
		}

		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}

		dst = jsonspan.AppendString(dst, string(name))
		dst = append(dst, ':')
		dst = append(dst, value...)
	}

	return append(dst, '}')
}

// appendOwnEvents appends the own words of the events of a stream that came in place of a JSON answer.
func appendOwnEvents(dst, raw []byte) []byte {
	var s sse.Splitter
	defer s.Close()
	s.Feed(raw)
	for {
		ev, ok := s.Next()
		if !ok {
			return dst
		}
		if isObject(ev.Data) {
			dst = append(appendOwnWords(append(dst, "data: "...), ev.Data), "\n\n"...)
		}
	}
}

// choiceError returns the first error in a list of choices, nil if there is none.
func choiceError(list []byte) []byte {
	for choice := range jsonspan.Elements(list) {
		if inner, ok := jsonspan.Find(choice, "error"); ok && IsError(inner) {
			return inner
		}
	}
	return nil
}

// explainsFailure reports whether a provider explains a failure in a member of an answer.
func explainsFailure(name, value []byte) bool {
	switch string(name) {
	case "error", "status", "incomplete_details", "stop_reason":
		return true
	case "message":
		return jsonspan.KindOf(value) == jsonspan.KindString
	}
	return IsErrorText(name)
}
