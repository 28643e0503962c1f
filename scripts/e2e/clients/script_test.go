package clients

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A script is a provider of text models. In a conversation without results of tools it calls a tool of the client;
// afterwards it answers with a text that repeats the result. The beginning of an upstream model selects a fault.
type script struct {
	mu sync.Mutex
	// limited has the upstream models that were refused once.
	limited map[string]bool
}

// command is the shell command that agents are told to run. It writes made.txt.
const command = "echo amber > made.txt && echo sunny in Oslo"

// calls has the arguments of the tools that the script calls, by name.
var calls = map[string]any{
	"weather":      map[string]any{"city": "Oslo"},
	"Bash":         map[string]any{"command": command, "description": "Write a file"},
	"bash":         map[string]any{"command": command, "description": "Write a file"},
	"exec_command": map[string]any{"cmd": command},
	// Tools of agents with the command as an argument, or in a program that the client runs.
	"run_shell_command": map[string]any{"command": command, "is_background": false, "description": "Write a file"},
	"exec":              `const done = await tools.exec_command({cmd: "` + command + `"}); text(done.output)`,
	"run_commands":      map[string]any{"commands": []string{command}},
	"mcp__mgw__weather": map[string]any{"city": "Oslo"},
}

type object = map[string]any

// turn is a request and the answer to it.
type turn struct {
	// id is part of the answer's id: some frameworks take two answers with one id for versions of one.
	id     string
	model  string
	stream bool
	// tool is the tool to call, empty for a text.
	tool, arguments, text string
	// custom reports whether the tool takes a text in place of arguments; namespace is its group.
	custom        bool
	namespace     string
	input, output int
}

func newScript(t *testing.T) *httptest.Server {
	t.Helper()
	s := &script{limited: map[string]bool{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server
}

func (s *script) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var body object
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tn := read(body)
	format := q.URL.Path[strings.LastIndexByte(q.URL.Path, '/')+1:]
	if s.fails(w, tn, format) {
		return
	}
	switch format {
	case "completions":
		tn.chat(w)
	case "responses":
		tn.responses(w)
	case "messages":
		tn.messages(w)
	default:
		http.NotFound(w, q)
	}
}

// fails writes the fault of the model and reports whether it has one.
func (s *script) fails(w http.ResponseWriter, tn *turn, format string) bool {
	fault, _, _ := strings.Cut(tn.model, "-")
	switch fault {
	case "limited":
		s.mu.Lock()
		first := !s.limited[tn.model]
		s.limited[tn.model] = true
		s.mu.Unlock()
		if !first {
			return false
		}
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusTooManyRequests, object{"type": "error", "error": object{"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Slow down."}})
	case "failing":
		reply(w, http.StatusInternalServerError, object{"type": "error", "error": object{"type": "server_error", "code": "server_error", "message": "Out of order."}})
	case "broken":
		// The length promises more than there is, so the connection closes within the stream.
		w.Header().Set("Content-Type", "text/event-stream")
		var first strings.Builder
		tn.begin(&first, format)
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write([]byte(first.String()))
	case "failed":
		r := tn.response("failed", []any{})
		r["error"] = object{"code": "server_error", "message": "The model produced an internal error."}
		// Providers repeat the tools of the request, whose words are not about the error.
		r["tools"] = []any{object{"type": "function", "name": "f", "description": "Rate limit reached, try again in 50s", "parameters": object{}}}
		events(w, func(send sender) {
			send("response.created", object{"response": tn.response("in_progress", []any{})})
			send("response.failed", object{"response": r})
		})
	default:
		return false
	}
	return true
}

// begin writes the first events of a stream of text.
func (tn *turn) begin(out *strings.Builder, format string) {
	record := httptest.NewRecorder()
	whole := *tn
	whole.tool, whole.stream = "", true
	switch format {
	case "completions":
		whole.chat(record)
	case "responses":
		whole.responses(record)
	default:
		whole.messages(record)
	}
	all := record.Body.String()
	at := strings.Index(all, "done:")
	out.WriteString(all[:at+strings.Index(all[at:], "\n\n")+2])
}

// read reads a request of any format.
func read(body object) *turn {
	tn := &turn{id: rand.Text()}
	tn.model, _ = body["model"].(string)
	tn.stream, _ = body["stream"].(bool)
	raw, _ := json.Marshal(body)
	tn.input = len(raw) / 4
	input, _ := body["input"].([]any)
	list, _ := body["messages"].([]any)
	result := resultOf(append(input, list...))
	if result == "" {
		lists := append([]any{body}, input...)
		for _, holder := range lists {
			tn.find(holder, "")
		}
	}
	if tn.tool == "" {
		tn.text = "done: " + result
	}
	tn.output = 5 + len(tn.text+tn.arguments)/4
	return tn
}

// find looks for a tool that the script can call, also in groups of tools.
func (tn *turn) find(holder any, namespace string) {
	h, _ := holder.(object)
	tools, _ := h["tools"].([]any)
	for _, tool := range tools {
		definition, _ := tool.(object)
		if function, ok := definition["function"].(object); ok {
			definition = function
		}
		name, _ := definition["name"].(string)
		if definition["type"] == "namespace" {
			tn.find(definition, name)
		}
		arguments, ok := calls[name]
		if !ok || tn.tool != "" {
			continue
		}
		tn.tool, tn.namespace = name, namespace
		if tn.arguments, tn.custom = arguments.(string); !tn.custom {
			raw, _ := json.Marshal(arguments)
			tn.arguments = string(raw)
		}
	}
}

// resultOf returns the text of the last result of a tool, empty if there is none.
func resultOf(turns []any) (text string) {
	for _, item := range turns {
		one, _ := item.(object)
		content, _ := one["content"].([]any)
		switch {
		case one["role"] == "tool":
			text = textOf(one["content"])
		case one["type"] == "function_call_output", one["type"] == "custom_tool_call_output":
			text = textOf(one["output"])
		}
		for _, block := range content {
			if b, _ := block.(object); b["type"] == "tool_result" {
				text = textOf(b["content"])
			}
		}
	}
	return text
}

// textOf returns the text of a string or of a list of blocks.
func textOf(content any) string {
	if text, ok := content.(string); ok {
		return text
	}
	blocks, _ := content.([]any)
	var all strings.Builder
	for _, block := range blocks {
		b, _ := block.(object)
		text, _ := b["text"].(string)
		all.WriteString(text)
	}
	return all.String()
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// sender sends an event with its type as name. An empty type sends no name.
type sender func(kind string, data object)

func events(w http.ResponseWriter, write func(sender)) {
	w.Header().Set("Content-Type", "text/event-stream")
	number := 0
	write(func(kind string, data object) {
		if kind != "" {
			data["type"], data["sequence_number"] = kind, number
			_, _ = fmt.Fprintf(w, "event: %s\n", kind)
		}
		number++
		raw, _ := json.Marshal(data)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", raw)
	})
}

func (tn *turn) chat(w http.ResponseWriter) {
	usage := object{"prompt_tokens": tn.input, "completion_tokens": tn.output, "total_tokens": tn.input + tn.output}
	message, finish := object{"role": "assistant", "content": tn.text}, "stop"
	if tn.tool != "" {
		call := object{"index": 0, "id": "call_1", "type": "function", "function": object{"name": tn.tool, "arguments": tn.arguments}}
		message, finish = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}, "tool_calls"
	}
	chunk := func(kind string, choices []any, usage any) object {
		return object{"id": "chatcmpl-" + tn.id, "object": kind, "created": 1, "model": tn.model, "choices": choices, "usage": usage}
	}
	if !tn.stream {
		reply(w, http.StatusOK, chunk("chat.completion", []any{object{"index": 0, "message": message, "finish_reason": finish}}, usage))
		return
	}
	events(w, func(send sender) {
		send("", chunk("chat.completion.chunk", []any{object{"index": 0, "delta": message, "finish_reason": nil}}, nil))
		send("", chunk("chat.completion.chunk", []any{object{"index": 0, "delta": object{}, "finish_reason": finish}}, nil))
		send("", chunk("chat.completion.chunk", []any{}, usage))
		_, _ = w.Write([]byte("data: [DONE]\n\n"))
	})
}

// response returns the response object.
func (tn *turn) response(status string, output []any) object {
	return object{
		"id": "resp_" + tn.id, "object": "response", "created_at": 1, "status": status, "model": tn.model, "output": output, "error": nil, "incomplete_details": nil,
		"instructions": nil, "metadata": object{}, "parallel_tool_calls": true, "temperature": 1, "tool_choice": "auto", "tools": []any{}, "top_p": 1,
		"usage": object{
			"input_tokens": tn.input, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": tn.output, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": tn.input + tn.output,
		},
	}
}

func (tn *turn) responses(w http.ResponseWriter) {
	part := object{"type": "output_text", "text": tn.text, "annotations": []any{}}
	item := object{"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": []any{part}}
	kind, member, event := "function_call", "arguments", "response.function_call_arguments."
	if tn.custom {
		kind, member, event = "custom_tool_call", "input", "response.custom_tool_call_input."
	}
	if tn.tool != "" {
		item = object{"id": "fc_1", "type": kind, "status": "completed", "call_id": "call_1", "name": tn.tool, member: tn.arguments}
		if tn.namespace != "" {
			item["namespace"] = tn.namespace
		}
	}
	whole := tn.response("completed", []any{item})
	if !tn.stream {
		reply(w, http.StatusOK, whole)
		return
	}
	events(w, func(send sender) {
		begun := tn.response("in_progress", []any{})
		begun["usage"] = nil
		send("response.created", object{"response": begun})
		at := func(more object) object {
			more["output_index"], more["item_id"] = 0, item["id"]
			return more
		}
		if tn.tool != "" {
			begun := maps.Clone(item)
			begun["status"], begun[member] = "in_progress", ""
			send("response.output_item.added", at(object{"item": begun}))
			send(event+"delta", at(object{"delta": tn.arguments}))
			send(event+"done", at(object{"name": tn.tool, member: tn.arguments}))
		} else {
			send("response.output_item.added", at(object{"item": object{"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []any{}}}))
			send("response.content_part.added", at(object{"content_index": 0, "part": object{"type": "output_text", "text": "", "annotations": []any{}}}))
			send("response.output_text.delta", at(object{"content_index": 0, "delta": tn.text, "logprobs": []any{}}))
			send("response.output_text.done", at(object{"content_index": 0, "text": tn.text, "logprobs": []any{}}))
			send("response.content_part.done", at(object{"content_index": 0, "part": part}))
		}
		send("response.output_item.done", at(object{"item": item}))
		send("response.completed", object{"response": whole})
	})
}

func (tn *turn) messages(w http.ResponseWriter) {
	block, reason := object{"type": "text", "text": tn.text}, "end_turn"
	if tn.tool != "" {
		var input object
		_ = json.Unmarshal([]byte(tn.arguments), &input)
		block, reason = object{"type": "tool_use", "id": "toolu_1", "name": tn.tool, "input": input}, "tool_use"
	}
	usage := object{"input_tokens": tn.input, "output_tokens": tn.output, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	message := object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": tn.model, "content": []any{block},
		"stop_reason": reason, "stop_sequence": nil, "usage": usage,
	}
	if !tn.stream {
		reply(w, http.StatusOK, message)
		return
	}
	events(w, func(send sender) {
		begun := maps.Clone(message)
		begun["content"], begun["stop_reason"] = []any{}, nil
		begun["usage"] = object{"input_tokens": tn.input, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
		send("message_start", object{"message": begun})
		first, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": tn.text}
		if tn.tool != "" {
			first = object{"type": "tool_use", "id": "toolu_1", "name": tn.tool, "input": object{}}
			delta = object{"type": "input_json_delta", "partial_json": tn.arguments}
		}
		send("content_block_start", object{"index": 0, "content_block": first})
		send("content_block_delta", object{"index": 0, "delta": delta})
		send("content_block_stop", object{"index": 0})
		send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": tn.output}})
		send("message_stop", object{})
	})
}
