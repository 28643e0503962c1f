package conformance

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/platform/testkit/wiresample"
	"modelgateway/shared/price"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// want is the entry of one answer in testdata/want.json.
type want struct {
	// Failed is true for an error in place of an answer, OK for a stream that is
	// complete at its end.
	Failed    bool        `json:"failed"`
	OK        bool        `json:"ok"`
	Reported  bool        `json:"reported"`
	Usage     price.Usage `json:"usage"`
	Delivered int64       `json:"delivered"`
}

// result is the outcome of reading an answer; out is the client's answer.
type result struct {
	want
	out []byte
}

// bodies holds the requests that the fixtures answer. Each sets every parameter that the
// gateway replaces.
var bodies = map[catalogkv.Format]string{
	catalogkv.Chat:      `{"model":"my-model","messages":[],"user":"me","store":true}`,
	catalogkv.Responses: `{"model":"my-model","input":"x","user":"me","metadata":{"a":"b"}}`,
	catalogkv.Messages:  `{"model":"my-model","messages":[],"max_tokens":9}`,
	catalogkv.Images:    `{"model":"my-model","prompt":"x","size":"512x512","quality":"high"}`,
	catalogkv.Videos:    `{"model":"my-model","prompt":"x","size":"512x512","seconds":"4"}`,
}

// newAnswer returns a reader of the answer to the request of a format. add is JSON that
// is appended to the members of the request.
func newAnswer(tb testing.TB, f catalogkv.Format, add string) format.Answer {
	tb.Helper()
	d, ok := dialects[f]
	if !ok {
		tb.Fatalf("no dialect for %q", f)
	}
	r, e := d.Read(parse(tb, strings.TrimSuffix(bodies[f], "}")+add+"}"))
	if e != nil {
		tb.Fatal(e)
	}
	a := d.NewAnswer(format.AnswerConfig{Request: r, ID: "video_mine"})
	r.Release() // an answer must not refer to a released request
	return a
}

func parse(tb testing.TB, body string) *jsonspan.Object {
	tb.Helper()
	var obj jsonspan.Object
	if err := obj.Parse([]byte(body)); err != nil {
		tb.Fatalf("%v in %s", err, body)
	}
	return &obj
}

// answerJSON reads a whole answer.
func answerJSON(a format.Answer, body []byte) (r result) {
	out, ok := a.JSON([]byte("before "), bytes.Clone(body))
	r.out = bytes.TrimPrefix(out, []byte("before "))
	return r.end(a, ok)
}

// answerStream reads a stream in pieces. size returns the length of the next piece, given
// the number of bytes that remain.
func answerStream(a format.Answer, stream []byte, size func(rest int) int) (r result) {
	var s sse.Splitter
	defer s.Close()
	failed := false
	take := func(ev sse.Event) {
		var kind format.Kind
		r.out, kind = a.Event(r.out, ev)
		failed = failed || kind == format.Failure
	}
	for len(stream) > 0 {
		n := size(len(stream))
		read := bytes.Clone(stream[:n])
		stream = stream[n:]
		s.Feed(read)
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			take(ev)
		}
	}
	if ev, ok := s.Flush(); ok {
		take(ev)
	}
	if !failed {
		r.out, r.OK = a.Finish(r.out)
	}
	return r.end(a, !failed)
}

// end completes the result with the usage that the answer reports at its end.
func (r result) end(a format.Answer, ok bool) result {
	r.Failed = !ok
	r.Usage, r.Reported = a.Usage()
	r.Delivered = a.DeliveredTokens()
	return r
}

func oneRead(rest int) int { return rest }

// fixtures calls fn for every answer in a file system. The folder of an answer is its
// format. Golden files are left out.
func fixtures(tb testing.TB, files fs.FS, fn func(name string, f catalogkv.Format, body []byte)) {
	tb.Helper()
	found := 0
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f := catalogkv.Format(path.Dir(name))
		ext := path.Ext(name)
		if _, ok := dialects[f]; !ok || ext != ".json" && ext != ".sse" || strings.Contains(name, ".client.") {
			return nil
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		found++
		fn(name, f, body)
		return nil
	})
	if err != nil || found == 0 {
		tb.Fatalf("%d fixtures, %v", found, err)
	}
}

// testdata holds the fixtures whose rewritten form is compared with golden files.
var testdata = os.DirFS("testdata")

func TestAnswersMatchGoldenFiles(t *testing.T) {
	t.Parallel()
	var wants map[string]want
	text, err := os.ReadFile("testdata/want.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &wants); err != nil {
		t.Fatal(err)
	}
	fixtures(t, testdata, func(name string, f catalogkv.Format, body []byte) {
		t.Run(name, func(t *testing.T) {
			want, ok := wants[name]
			if !ok {
				t.Fatal("not in want.json")
			}
			a := newAnswer(t, f, "")
			defer a.Release()
			var got result
			if path.Ext(name) == ".json" {
				got = answerJSON(a, body)
			} else {
				got = answerStream(a, body, oneRead)
				checkStream(t, got.out)
			}
			if diff := cmp.Diff(want, got.want); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if (a.Failure() != nil) != want.Failed {
				t.Errorf("Failure is %q", a.Failure())
			}
			if id := a.ProviderID(); id == "" && !want.Failed && f != catalogkv.Images {
				t.Error("no id")
			}
			golden(t, filepath.Join("testdata", strings.Replace(name, ".", ".client.", 1)), got.out)
		})
	})
}

// checkStream checks that the stream for the client consists of whole events and does not
// contain the provider's name of the model.
func checkStream(t *testing.T, out []byte) {
	t.Helper()
	var s sse.Splitter
	s.Feed(out)
	for ev, ok := s.Next(); ok; ev, ok = s.Next() {
		if ev.Comment || len(ev.Data) == 0 || string(ev.Data) == "[DONE]" {
			continue
		}
		if !json.Valid(ev.Data) {
			t.Errorf("an event is not JSON: %s", ev.Data)
		}
	}
	if ev, ok := s.Flush(); ok && ev.Partial {
		t.Errorf("the stream ends within an event: %q", ev.Raw)
	}
	if bytes.Contains(out, []byte("upstream-1")) {
		t.Error("the stream contains the provider's name of the model")
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: want -, got +:\n%s", file, diff)
	}
}

func TestChatStreamWithRequestedUsageChangesOnlyTheModelName(t *testing.T) {
	t.Parallel()
	fixtures(t, testdata, func(name string, f catalogkv.Format, body []byte) {
		if f != catalogkv.Chat || path.Ext(name) != ".sse" {
			return
		}
		t.Run(name, func(t *testing.T) {
			a := newAnswer(t, f, `,"stream":true,"stream_options":{"include_usage":true}`)
			defer a.Release()
			got := answerStream(a, body, oneRead)
			if got.Failed || !got.OK || strings.Contains(name, "lines") || strings.Contains(name, "error-null") {
				return // the gateway changes the framing of these streams, too
			}
			want := strings.ReplaceAll(strings.ReplaceAll(string(body), "upstream-1", "my-model"), `"model":""`, `"model":"my-model"`)
			want = strings.ReplaceAll(want, ": waiting\n", ":\n")
			if have := string(got.out); strings.TrimRight(have, "\n") != strings.TrimRight(want, "\n") && have != want+"data: [DONE]\n\n" {
				t.Errorf("want -, got +:\n%s", cmp.Diff(want, have))
			}
		})
	})
}

func TestResultDoesNotDependOnTheSizesOfReads(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	sizes := map[string]func(rest int) int{
		"byte by byte": func(int) int { return 1 },
		"random":       func(rest int) int { return 1 + rnd.IntN(min(rest, 300)) },
	}
	fixtures(t, testdata, func(name string, f catalogkv.Format, body []byte) {
		if path.Ext(name) != ".sse" {
			return
		}
		a := newAnswer(t, f, "")
		defer a.Release()
		want := answerStream(a, body, oneRead)
		for how, size := range sizes {
			b := newAnswer(t, f, "")
			got := answerStream(b, body, size)
			b.Release()
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("%s, %s: whole -, in pieces +:\n%s", name, how, diff)
			}
		}
	})
}

func TestSamplesReportTheExpectedUsage(t *testing.T) {
	t.Parallel()
	expected := wiresample.ExpectedUsage(t)
	fixtures(t, wiresample.Files(), func(name string, f catalogkv.Format, body []byte) {
		t.Run(name, func(t *testing.T) {
			want := expected[name]
			var usage expectedUsage
			if err := json.Unmarshal(want.Usage, &usage); err != nil {
				t.Fatal(err)
			}
			a := newAnswer(t, f, "")
			defer a.Release()
			var got result
			if path.Ext(name) == ".json" {
				got = answerJSON(a, body)
			} else {
				got = answerStream(a, body, oneRead)
				checkStream(t, got.out)
			}
			if got.Reported != (want.Billing == "final") {
				t.Errorf("billing %s, but reported is %v", want.Billing, got.Reported)
			}
			got.Usage.Size, got.Usage.Quality = "", "" // the samples do not list the keys of a price
			if diff := cmp.Diff(price.Usage(usage), got.Usage); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	})
}

// expectedUsage decodes a usage in which the samples list further models in their own form.
type expectedUsage price.Usage

func (u *expectedUsage) UnmarshalJSON(text []byte) error {
	type plain price.Usage
	whole := struct {
		*plain
		Secondary []price.Secondary `json:"secondary"`
		ToolImage *price.Secondary  `json:"tool_image"`
	}{plain: (*plain)(u)}
	if err := json.Unmarshal(text, &whole); err != nil {
		return err
	}
	for _, second := range whole.Secondary {
		u.Secondary = second
		u.Secondary.Kind = price.SVG
	}
	if whole.ToolImage != nil {
		u.Secondary = *whole.ToolImage
		u.Secondary.Kind = price.ImageTool
	}
	return nil
}
