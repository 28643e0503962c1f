package videos

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// part is one part of a form.
type part struct{ Name, File, Type, Value string }

func encode(tb testing.TB, parts ...part) (contentType string, body []byte) {
	tb.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		disposition := `form-data; name="` + p.Name + `"`
		if p.File != "" {
			disposition += `; filename="` + p.File + `"`
			h.Set("Content-Type", p.Type)
		}
		h.Set("Content-Disposition", disposition)
		out, err := w.CreatePart(h)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(out, p.Value); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return w.FormDataContentType(), buf.Bytes()
}

func decode(tb testing.TB, contentType string, body []byte) (parts []part) {
	tb.Helper()
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		tb.Fatal(err)
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			tb.Fatal(err)
		}
		value, err := io.ReadAll(p)
		if err != nil {
			tb.Fatal(err)
		}
		parts = append(parts, part{p.FormName(), p.FileName(), p.Header.Get("Content-Type"), string(value)})
	}
}

var target = format.Target{Model: "up", Policy: policy}

func TestFormIsReadLikeJSON(t *testing.T) {
	t.Parallel()
	contentType, body := encode(t, part{Name: "model", Value: "m"}, part{Name: "prompt", Value: "a \"boat\"\r\non a lake"}, part{Name: "seconds", Value: "8"}, part{Name: "size", Value: "1280x720"})
	if !IsForm(contentType) || IsForm("application/json") || IsForm("") {
		t.Error("IsForm does not distinguish forms from JSON")
	}
	r, e := ReadForm(contentType, body)
	if e != nil {
		t.Fatal(e)
	}
	defer r.Release()
	if r.Model != "m" || r.Seconds != 8 || r.Size != "1280x720" || r.File != nil {
		t.Errorf("got %+v", r)
	}
	if e := r.Check(policy, format.Rules{}); e != nil {
		t.Fatal(e)
	}
	want := `{"model":"up","prompt":"a \"boat\"\u000d\u000aon a lake","seconds":"8","size":"1280x720"}`
	if got := string(r.AppendUpstream(nil, target)); got != want || r.ContentType() != "application/json" {
		t.Errorf("got %s as %s; want %s", got, r.ContentType(), want)
	}
}

func TestFormWithFileIsForwardedAsForm(t *testing.T) {
	t.Parallel()
	picture := "\x89PNG\r\n\x00--boundary--\xff"
	contentType, body := encode(t, part{Name: "input_reference", File: "a.png", Type: "image/png", Value: picture}, part{Name: "model", Value: "m"}, part{Name: "prompt", Value: "€ \\ \""})
	r, e := ReadForm(contentType, body)
	if e != nil {
		t.Fatal(e)
	}
	defer r.Release()
	if e := r.Check(policy, format.Rules{}); e != nil {
		t.Fatal(e)
	}
	if diff := cmp.Diff(&format.File{Field: "input_reference", Name: "a.png", Type: "image/png", Data: []byte(picture)}, r.File); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	out := r.AppendUpstream([]byte{}, target)
	want := []part{{Name: "model", Value: "up"}, {Name: "prompt", Value: "€ \\ \""}, {Name: "seconds", Value: "4"}, {"input_reference", "a.png", "image/png", picture}}
	if diff := cmp.Diff(want, decode(t, r.ContentType(), out)); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// Values are read into the body itself, so a value must not overwrite a later one, whatever their lengths.
func TestFormIsReadWithoutACopyOfItsFile(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 100, 4095, 4096, 5000, 70_001, 8 << 20} {
		random := rand.New(rand.NewPCG(1, uint64(size)))
		picture, prompt := make([]byte, size), make([]byte, size%10_000+1)
		for i := range picture {
			picture[i] = byte(random.Uint32())
		}
		for i := range prompt {
			prompt[i] = 'a' + byte(random.IntN(26))
		}
		contentType, body := encode(t, part{Name: "prompt", Value: string(prompt)},
			part{Name: "input_reference", File: "a.png", Type: "image/png", Value: string(picture)},
			part{Name: "model", Value: "m"}, part{Name: "seconds", Value: "8"})
		r, e := ReadForm(contentType, body)
		if e != nil {
			t.Fatalf("%d bytes: %v", size, e)
		}
		if !bytes.Equal(r.File.Data, picture) || r.Text("prompt") != string(prompt) || r.Model != "m" || r.Seconds != 8 {
			t.Errorf("a file of %d bytes, or a field beside it, was not read as it was sent", size)
		}
		if len(r.File.Data) > 0 && &r.File.Data[0] != &body[len(prompt)] {
			t.Errorf("a file of %d bytes was copied", size)
		}
		r.Release()
	}
}

func TestFormWithNestedReference(t *testing.T) {
	t.Parallel()
	contentType, body := encode(t, part{Name: "model", Value: "m"}, part{Name: "prompt", Value: "x"}, part{Name: "input_reference[image_url]", Value: "https://pictures.example/1.png"})
	r, e := ReadForm(contentType, body)
	if e != nil {
		t.Fatal(e)
	}
	defer r.Release()
	if e := r.Check(policy, format.Rules{}); e != nil {
		t.Fatal(e)
	}
	want := `{"model":"up","prompt":"x","input_reference":{"image_url":"https://pictures.example/1.png"},"seconds":"4"}`
	if got := string(r.AppendUpstream(nil, target)); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestInvalidFormsAreRefused(t *testing.T) {
	t.Parallel()
	model, prompt := part{Name: "model", Value: "m"}, part{Name: "prompt", Value: "x"}
	file := part{Name: "input_reference", File: "a.png", Type: "image/png", Value: "x"}
	tests := []struct {
		name  string
		parts []part
		code  apierr.Code
		param string
	}{
		{"no model", []part{prompt}, apierr.InvalidRequest, "model"},
		{"no prompt", []part{model}, apierr.InvalidRequest, "prompt"},
		{"a field twice", []part{model, prompt, model}, apierr.InvalidRequest, ""},
		{"a nested field twice", []part{model, prompt, {Name: "input_reference[image_url]", Value: "a"}, {Name: "input_reference[image_url]", Value: "b"}}, apierr.InvalidRequest, ""},
		{"not text", []part{model, {Name: "prompt", Value: "\xff"}}, apierr.InvalidRequest, ""},
		{"an unknown field", []part{model, prompt, {Name: "fps", Value: "24"}}, apierr.UnsupportedParameter, "fps"},
		{"a stored file", []part{model, prompt, {Name: "input_reference[file_id]", Value: "f"}}, apierr.UnsupportedParameter, "input_reference.file_id"},
		{"a text for the file", []part{model, prompt, {Name: "input_reference", Value: "f"}}, apierr.InvalidValue, "input_reference"},
		{"a file elsewhere", []part{model, prompt, {Name: "mask", File: "a.png", Type: "image/png"}}, apierr.UnsupportedParameter, "mask"},
		{"two files", []part{model, prompt, file, file}, apierr.UnsupportedParameter, "input_reference"},
		{"a file and an address", []part{model, prompt, file, {Name: "input_reference[image_url]", Value: "a"}}, apierr.InvalidValue, "input_reference"},
		{"no length", []part{model, prompt, {Name: "seconds", Value: "eight"}}, apierr.InvalidValue, "seconds"},
		{"no field name", []part{model, prompt, {Value: "x"}}, apierr.InvalidRequest, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, e := ReadForm(encode(t, tt.parts...))
			if e == nil {
				defer r.Release()
				e = r.Check(policy, format.Rules{})
			}
			if e == nil || e.Status != 400 || e.Code != tt.code || e.Param != tt.param {
				t.Errorf("got %v; want %s of %q", e, tt.code, tt.param)
			}
		})
	}
	many := make([]part, maxFields+1)
	for i := range many {
		many[i] = part{Name: "f" + strings.Repeat("x", i)}
	}
	if _, e := ReadForm(encode(t, many...)); e == nil || e.Code != apierr.InvalidRequest {
		t.Errorf("too many fields: got %v", e)
	}
	contentType, body := encode(t, model, prompt)
	for name, call := range map[string]func() (*format.Request, *apierr.Error){
		"cut":         func() (*format.Request, *apierr.Error) { return ReadForm(contentType, body[:len(body)-20]) },
		"no boundary": func() (*format.Request, *apierr.Error) { return ReadForm("multipart/form-data", body) },
		"empty":       func() (*format.Request, *apierr.Error) { return ReadForm(contentType, nil) },
		"no type":     func() (*format.Request, *apierr.Error) { return ReadForm("", body) },
	} {
		if _, e := call(); e == nil || e.Code != apierr.InvalidRequest || e.Status != 400 {
			t.Errorf("%s: got %v", name, e)
		}
	}
}

func TestSecondsAreReadAsStringOrNumber(t *testing.T) {
	t.Parallel()
	tests := []struct {
		add, sent string
		want      int64
		bad       bool
	}{
		{``, `"4"`, 0, false},
		{`,"seconds":null`, `"4"`, 0, false},
		{`,"seconds":"8"`, `"8"`, 8, false},
		{`,"seconds":8`, `"8"`, 8, false},
		{`,"seconds":8.0`, `"8"`, 8, false},
		{`,"seconds":8.5`, ``, 0, true},
		{`,"seconds":0`, ``, 0, true},
		{`,"seconds":"-4"`, ``, 0, true},
		{`,"seconds":"99999999999"`, ``, 0, true},
		{`,"seconds":99999999999`, ``, 0, true},
		{`,"seconds":true`, ``, 0, true},
	}
	for _, tt := range tests {
		var obj jsonspan.Object
		if err := obj.Parse([]byte(`{"model":"m","prompt":"x"` + tt.add + `}`)); err != nil {
			t.Fatal(err)
		}
		r, e := Dialect{}.Read(&obj)
		if e != nil {
			t.Fatal(e)
		}
		e = r.Check(policy, format.Rules{})
		if tt.bad {
			if e == nil || e.Code != apierr.InvalidValue || e.Param != "seconds" {
				t.Errorf("%s: got %v", tt.add, e)
			}
			continue
		}
		var sent map[string]json.RawMessage
		if err := json.Unmarshal(r.AppendUpstream(nil, target), &sent); err != nil {
			t.Fatal(err)
		}
		if r.Seconds != tt.want || e != nil || string(sent["seconds"]) != tt.sent {
			t.Errorf("%s: got %d, %v, sent %s", tt.add, r.Seconds, e, sent["seconds"])
		}
	}
}

func TestReadJobMapsStates(t *testing.T) {
	t.Parallel()
	body := `{"id":"v","status":"canceled","progress":57,"seconds":"8","size":"1280x720","created_at":1,"completed_at":2,"expires_at":null,"error":{"code":"c","message":"m"}}`
	want := Job{ID: "v", Status: Failed, Progress: 57, Seconds: 8, Size: "1280x720", CreatedUnix: 1, CompletedUnix: 2, ErrorCode: "c", ErrorMessage: "m"}
	got, ok := ReadJob([]byte(body))
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("ok %v, want -, got +:\n%s", ok, diff)
	}
	for _, body := range []string{``, `[]`, `{"id":"v"}`, `{"status":"queued"}`, `{"id":"v","status":"queued"`} {
		if _, ok := ReadJob([]byte(body)); ok {
			t.Errorf("%s is no job", body)
		}
	}
	final := map[Status]bool{Queued: false, InProgress: false, Completed: true, Failed: true}
	for status, want := range final {
		if status.Final() != want {
			t.Errorf("%s is final: %v", status, status.Final())
		}
	}
}

// Providers write the reason of a failure in several ways; a job that has failed without one has that of the gateway.
func TestReasonOfAFailedJobIsFound(t *testing.T) {
	t.Parallel()
	for members, want := range map[string][2]string{
		`"error":{"code":"c","message":"m"}`:                     {"c", "m"},
		`"error":{"code":1301,"message":"m"}`:                    {"1301", "m"},
		`"error":"m"`:                                            {failedCode, "m"},
		`"error":null,"failure_reason":"m"`:                      {failedCode, "m"},
		`"error":{"code":null,"message":null}`:                   {failedCode, failedMessage},
		`"error":{"code":"c"},"fail_reason":"m"`:                 {"c", "m"},
		`"error":["a"]`:                                          {failedCode, failedMessage},
		`"progress":100`:                                         {failedCode, failedMessage},
		`"error_message":"m","message":"n"`:                      {failedCode, "m"},
		`"failure_reason":{"a":1},"error":{"message":["a","b"]}`: {failedCode, failedMessage},
	} {
		j, ok := ReadJob([]byte(`{"id":"v","status":"failed",` + members + `}`))
		if got := [2]string{j.ErrorCode, j.ErrorMessage}; got != want || !ok {
			t.Errorf("%s: got %q; want %q", members, got, want)
		}
		if j, _ := ReadJob([]byte(`{"id":"v","status":"completed",` + members + `}`)); j.ErrorCode != "" || j.ErrorMessage != "" {
			t.Errorf("%s of a completed job: got %+v", members, j)
		}
	}
}

// The words are those of the public interfaces of providers.
func TestWordsOfProvidersForStatesAreKnown(t *testing.T) {
	t.Parallel()
	for want, words := range map[Status][]string{
		Queued: {
			"queued", "submitted", "Queueing", "PENDING", "THROTTLED", "IN_QUEUE", "InQueue", "created", "NOT_START", "NOT_STARTED",
			"TASK_STATUS_QUEUED", "SUSPENDED", "WAIT", "waiting", "queuing", "JOB_STATE_PENDING", "in queue", "STATE_QUEUED",
		},
		InProgress: {
			"in_progress", "starting", "Preparing", "processing", "RUNNING", "dreaming", "IN_PROGRESS", "InProgress", "In Progress", "TASK_STATUS_PROCESSING", "RUN",
			"preprocessing", "generating", "JOB_STATE_RUNNING", "STATE_PROCESSING", "cancelling",
		},
		Completed: {
			"completed", "succeed", "Success", "SUCCEEDED", "SUCCESS", "COMPLETED", "TASK_STATUS_SUCCEED", "task_status_success", "Succeed", "Ready", "DONE", "done",
			"Finished", "JOB_STATE_SUCCEEDED", "COMPLETE", "complete", "generation_completed", "render.complete",
		},
		Failed: {
			"failed", "Fail", "FAILED", "CANCELLED", "FAIL", "CANCELED", "expired", "TASK_STATUS_FAILED", "TASK_STATUS_CANCELED", "Error", "errored", "aborted",
			"Request Moderated", "Content Moderated", "content_moderated", "Task not found", "not_found", "filtered", "content_filtered", "NSFW", "nsfw", "TIMED_OUT", "Timed-Out",
			"JOB_STATE_FAILED", "JOB_STATE_EXPIRED", "FAILURE", "SUBMIT_FAILED", "content_policy_violation", "incomplete", "budget_exceeded", "rejected", "deleted",
		},
	} {
		for _, word := range words {
			if got, known := statusOf(word); got != want || !known {
				t.Errorf("%s is %s, known %v; want %s", word, got, known, want)
			}
		}
	}
	for _, word := range []string{"thinking", "", "7", "review", "not_completed", "uncompleted", "STATE_UNSPECIFIED", "UNKNOWN", "failover", "done_soon", "已完成"} {
		if got, known := statusOf(word); got != InProgress || known {
			t.Errorf("%q is %s, known %v", word, got, known)
		}
	}
	if j, _ := ReadJob([]byte(`{"id":"v","status":"thinking"}`)); !j.UnknownStatus {
		t.Error("a job does not say that its state is unknown")
	}
}

func TestFormatHasNoStreams(t *testing.T) {
	t.Parallel()
	got := string(Dialect{}.NewAnswer(format.AnswerConfig{}).AppendError(nil, apierr.New(502, apierr.UpstreamUnavailable, "Away."), "req_1"))
	want := "event: error\ndata: " + `{"error":{"message":"Away.","type":"server_error","code":"upstream_unavailable","request_id":"req_1"}}` + "\n\n"
	if got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	a := Dialect{}.NewAnswer(format.AnswerConfig{})
	defer a.Release()
	if _, ok := a.Finish(nil); ok {
		t.Error("a stream of video events is complete")
	}
}

// FuzzForm searches for forms that cause a panic or are sent with other content.
func FuzzForm(f *testing.F) {
	contentType, body := encode(f, part{Name: "model", Value: "m"}, part{Name: "prompt", Value: "x"}, part{Name: "input_reference", File: "a.png", Type: "image/png", Value: "x"})
	f.Add(contentType, body)
	contentType, body = encode(f, part{Name: "model", Value: "m"}, part{Name: "input_reference[image_url]", Value: "x"})
	f.Add(contentType, body)
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		r, e := ReadForm(contentType, slices.Clone(body))
		if e != nil {
			return
		}
		defer r.Release()
		if r.Check(policy, format.Rules{}) != nil {
			return
		}
		out := r.AppendUpstream(nil, target)
		if r.File == nil {
			if !json.Valid(out) {
				t.Errorf("%q became %q", body, out)
			}
			return
		}
		parts := decode(t, r.ContentType(), out)
		if last := parts[len(parts)-1]; last.Value != string(r.File.Data) {
			t.Errorf("%q became %q", body, out)
		}
	})
}

func TestLengthIsReadWhereverTheProviderStatesIt(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]int64{
		`"seconds":"8"`:                                8,
		`"seconds":8`:                                  8,
		`"seconds":"5.5"`:                              6,
		`"seconds":5.2`:                                6,
		`"usage":{"duration":10}`:                      10,
		`"usage":{"seconds":"10"}`:                     10,
		`"duration":7`:                                 7,
		`"seconds":"","duration":7`:                    7,
		`"seconds":null,"usage":{"duration":10}`:       10,
		`"seconds":"8","usage":{"duration":10}`:        8,
		`"seconds":0`:                                  0,
		`"seconds":"eight"`:                            0,
		`"seconds":-4`:                                 0,
		`"usage":[{"duration":10}]`:                    10,
		`"duration":"00:10","usage":{"duration":null}`: 0,

		// Units and names.
		`"duration":"8s"`:                 8,
		`"duration":"8"`:                  8,
		`"duration":"8 seconds"`:          8,
		`"seconds":" 8.0S "`:              8,
		`"duration_seconds":8`:            8,
		`"durationSeconds":"8s"`:          8,
		`"duration_ms":8000`:              8,
		`"duration":"8000ms"`:             8,
		`"n_seconds":10`:                  10,
		`"duration":"8 hours"`:            0,
		`"duration":"s"`:                  0,
		`"duration":"PT8S"`:               0,
		`"duration":8e99`:                 0,
		`"duration":true,"video":"x.mp4"`: 0,

		// A file is a little longer than what was asked for.
		`"duration":"5.1"`:   5,
		`"duration":5.041`:   5,
		`"duration":"10.04"`: 10,
		`"duration_ms":5041`: 5,
		`"duration":5.875`:   6,
		`"duration":0.04`:    1,

		// Places.
		`"video":{"duration":8,"url":"u"}`:                                 8,
		`"video":{"duration_seconds":"8.04"}`:                              8,
		`"task_result":{"videos":[{"id":"x","url":"u","duration":"5.1"}]}`: 5,
		`"data":[{"url":"u","duration":8},{"url":"v","duration":9}]`:       8,
		`"output":{"video":{"duration":8}}`:                                8,
		`"output":["https://x/y.mp4"],"usage":{"video_duration":8}`:        8,
		`"usage":{"output_video_duration":8,"video_count":1}`:              8,
		`"usage":{"details":{"duration":8}}`:                               0,
		`"metadata":{"duration":"1s"},"content":{"video_url":"u"}`:         0, // what a client may have sent
		`"data":{"data":{"data":{"data":{"duration":8}}}}`:                 0,
	} {
		if j, ok := ReadJob([]byte(`{"id":"v","status":"completed",` + members + `}`)); !ok || j.Seconds != want {
			t.Errorf("%s: got %d, %v; want %d", members, j.Seconds, ok, want)
		}
	}
}

// The price of a request without a length is that of the default length, so the provider must get that.
func TestDefaultLengthIsSent(t *testing.T) {
	t.Parallel()
	drop := policy.With(catalogkv.Params{"seconds": {Policy: "drop"}})
	for _, tt := range []struct {
		body   string
		target format.Target
		want   string
	}{
		{`{"model":"m","prompt":"x"}`, format.Target{Model: "up", Policy: policy}, `{"model":"up","prompt":"x","seconds":"4"}`},
		{`{"model":"m","prompt":"x","seconds":null}`, format.Target{Model: "up", Policy: policy, DefaultSeconds: 10}, `{"model":"up","prompt":"x","seconds":"10"}`},
		{`{"model":"m","prompt":"x","seconds":8}`, format.Target{Model: "up", Policy: policy, DefaultSeconds: 10}, `{"model":"up","prompt":"x","seconds":"8"}`},
		{`{"model":"m","prompt":"x"}`, format.Target{Model: "up", Policy: drop, DefaultSeconds: 10}, `{"model":"up","prompt":"x"}`},
	} {
		var obj jsonspan.Object
		if err := obj.Parse([]byte(tt.body)); err != nil {
			t.Fatal(err)
		}
		r, e := Dialect{}.Read(&obj)
		if e != nil {
			t.Fatal(e)
		}
		if got := string(r.AppendUpstream(nil, tt.target)); got != tt.want {
			t.Errorf("%s: sent as %s; want %s", tt.body, got, tt.want)
		}
		r.Release()
	}
}
