package conformance

import (
	"bytes"
	"encoding/json"
	"path"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

var order = []catalogkv.Format{catalogkv.Chat, catalogkv.Responses, catalogkv.Messages, catalogkv.Images, catalogkv.Videos}

func indexOf(f catalogkv.Format) uint8 {
	for i, known := range order {
		if known == f {
			return uint8(i)
		}
	}
	return 0
}

// checkUsage fails the test if a quantity is negative.
func checkUsage(t *testing.T, u price.Usage) {
	t.Helper()
	for _, n := range []int64{
		u.Input, u.CachedInput, u.CacheWrite5m, u.CacheWrite1h, u.CacheWrite30m, u.CacheWrite12h, u.CacheWriteOther,
		u.Output, u.Reasoning, u.AudioIn, u.AudioOut, u.ImageIn, u.ImageOut, u.Images, u.Seconds, u.ServerToolRequests,
	} {
		if n < 0 {
			t.Fatalf("a negative quantity in %+v", u)
		}
	}
}

// FuzzStream checks that no stream makes a reader panic, that each event is rewritten to
// whole events or to nothing, and that the sizes of the reads make no difference.
func FuzzStream(f *testing.F) {
	fixtures(f, testdata, func(name string, format catalogkv.Format, body []byte) {
		if path.Ext(name) == ".sse" {
			f.Add(indexOf(format), true, 7, body)
		}
	})
	f.Fuzz(func(t *testing.T, which uint8, asked bool, size int, stream []byte) {
		kind := order[int(which)%len(order)]
		add := ""
		if asked {
			add = `,"stream_options":{"include_usage":true}`
		}
		a, b := newAnswer(t, kind, add), newAnswer(t, kind, add)
		defer a.Release()
		defer b.Release()
		got := answerStream(a, stream, oneRead)
		checkUsage(t, got.Usage)
		pieces := answerStream(b, stream, func(rest int) int { return min(rest, max(size, 1)) })
		if !bytes.Equal(got.out, pieces.out) || got.want != pieces.want {
			t.Errorf("in one read: %q, %+v\nin several reads: %q, %+v", got.out, got.want, pieces.out, pieces.want)
		}
		checkEvents(t, newAnswer(t, kind, add), stream)
	})
}

// checkEvents checks the rewritten form of each event of a stream.
func checkEvents(t *testing.T, a format.Answer, stream []byte) {
	t.Helper()
	defer a.Release()
	var in, out sse.Splitter
	in.Feed(stream)
	for ev, ok := in.Next(); ok; ev, ok = in.Next() {
		raw, valid := bytes.Clone(ev.Raw), json.Valid(ev.Data)
		sent, kind := a.Event(nil, ev)
		if kind == format.Failure && (len(sent) > 0 || a.Failure() == nil) {
			t.Fatalf("a failure is forwarded as %q; Failure is %q", sent, a.Failure())
		}
		if bytes.Equal(sent, raw) {
			continue
		}
		out.Feed(sent)
		for ev, ok := out.Next(); ok; ev, ok = out.Next() {
			if valid && ev.Data != nil && !json.Valid(ev.Data) {
				t.Fatalf("%q became %q", raw, sent)
			}
		}
		if ev, ok := out.Flush(); ok && ev.Partial {
			t.Fatalf("%q became %q", raw, sent)
		}
		out.Close()
	}
}

// FuzzJSON checks that no answer makes a reader panic and that JSON stays JSON.
func FuzzJSON(f *testing.F) {
	fixtures(f, testdata, func(name string, format catalogkv.Format, body []byte) {
		if path.Ext(name) == ".json" {
			f.Add(indexOf(format), body)
		}
	})
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		a := newAnswer(t, order[int(which)%len(order)], "")
		defer a.Release()
		got := answerJSON(a, body)
		checkUsage(t, got.Usage)
		if (a.Failure() != nil) != got.Failed && len(body) > 0 {
			t.Errorf("failed is %v, but Failure is %q", got.Failed, a.Failure())
		}
		if !got.Failed && json.Valid(body) && !json.Valid(got.out) {
			t.Errorf("%q became %q", body, got.out)
		}
	})
}

// FuzzRequest checks that no body makes a check panic, and that a forwarded body is an
// object whose members the parameter table allows.
func FuzzRequest(f *testing.F) {
	for format, body := range formats {
		f.Add(indexOf(format), []byte(body))
	}
	f.Add(uint8(0), []byte(`{"model":"m","stream":true,"stream_options":{"include_obfuscation":true},"messages":[{"content":[{"file":{"file_id":1}}]}],"n":2}`))
	f.Add(uint8(1), []byte(`{"model":"m","input":[{"type":"x","content":[1,{}]}],"tools":[{"type":"namespace","tools":[]}],"store":true}`))
	f.Add(uint8(2), []byte(`{"model":"m","max_tokens":1,"messages":[{"content":[{"source":{"content":[{}]}}]}],"metadata":{"user_id":"x"}}`))
	f.Add(uint8(3), []byte(`{"model":"m","prompt":"x","n":1e99,"stream":false}`))
	f.Add(uint8(4), []byte(`{"model":"m","prompt":"x","seconds":4,"input_reference":{"image_url":"x"}}`))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		d := dialects[order[int(which)%len(order)]]
		var obj jsonspan.Object
		if obj.Parse(body) != nil {
			return
		}
		r, e := d.Read(&obj)
		if e != nil {
			return
		}
		defer r.Release()
		if e := r.Check(d.Policy(), format.Rules{}); e != nil {
			if e.Status != 400 || e.Code == "" {
				t.Errorf("refused with %v", e)
			}
			return
		}
		if n := r.EstimateInput(1000); n < 0 {
			t.Errorf("the estimate is %d", n)
		}
		out := r.AppendUpstream(nil, format.Target{Model: "u", Policy: d.Policy(), IdentityFunc: func(string) string { return "h" }})
		var sent jsonspan.Object
		if err := sent.Parse(out); err != nil {
			t.Fatalf("%s became %s: %v", body, out, err)
		}
		for _, m := range sent.Members() {
			row := d.Policy().Row(string(m.Name))
			if row.Action == format.Reject || row.Action == format.Drop || m.Kind == jsonspan.KindNull {
				t.Errorf("%s: %s is forwarded", body, m.Name)
			}
		}
	})
}
