package event

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"modelgateway/shared/price"
)

// filled sets every member of a struct to a value of its own.
func filled(t testing.TB, into reflect.Value, n int64) {
	t.Helper()
	for i := range into.NumField() {
		n++
		switch f := into.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(n * 1_000_003)
		case reflect.Int16:
			f.SetInt(n % 1_000)
		case reflect.String:
			f.SetString(string(rune('a'+i)) + "-text")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Struct:
			filled(t, f, n*100)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 2, 2))
			if f.Type().Elem().Kind() == reflect.Int64 {
				f.Index(0).SetInt(n * 100)
				f.Index(1).SetInt(n * 200)
				continue
			}
			filled(t, f.Index(0), n*100)
			filled(t, f.Index(1), n*200)
		default:
			t.Fatalf("a member of kind %s: scanner and AppendCounts do not know it", f.Kind())
		}
	}
}

func message(t testing.TB, events ...any) []byte {
	t.Helper()
	b := Batch{V: Version, BatchID: "batch", Session: 7}
	for _, e := range events {
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Events = append(b.Events, raw)
	}
	payload, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func TestScannerDecodesEverythingThatProxiesWrite(t *testing.T) {
	t.Parallel()
	var full, odd, none Usage
	filled(t, reflect.ValueOf(&full).Elem(), 0)
	odd.Model, odd.ProviderRequestID, odd.Cost = "é <&> \" \\ \x00 \u2028", "\xff", -5
	payload := message(t, full, odd, none)
	session, got, ok := scanBatch(payload)
	if !ok {
		t.Fatal("the scanner left the message to encoding/json")
	}
	_, want, err := unmarshalBatch(payload)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) || session != 7 {
		t.Errorf("session %d, events\n%+v; want\n%+v", session, got, want)
	}
	if !reflect.DeepEqual(got[0].Usage, full) {
		t.Errorf("got\n%+v; want\n%+v", got[0].Usage, full)
	}
}

func TestAppendCountsEqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	var full price.Usage
	filled(t, reflect.ValueOf(&full).Elem(), 0)
	for _, u := range []price.Usage{{}, full, {Output: -7, Size: "1\u20287 <x> \"é\""}, {Quality: "high"}} {
		want, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Usage{Usage: u}).AppendCounts([]byte("x")); string(got) != "x"+string(want) {
			t.Errorf("got %s; want x%s", got, want)
		}
	}
}

// FuzzDecodeBatch checks that the scanner never differs from encoding/json.
func FuzzDecodeBatch(f *testing.F) {
	var full Usage
	filled(f, reflect.ValueOf(&full).Elem(), 0)
	f.Add(message(f, full, full))
	for _, events := range []string{
		`{}`, `{"seq":1},{"seq":-2}`, `{"seq":01}`, `{"seq":1e3}`, `{"seq":1.5}`, `{"SEQ":1}`, `{"seq":null}`, `{"seq":1,"seq":2}`, `{"seq":9223372036854775808}`, `{"seq":-0}`,
		`{"usage":{"input":1},"usage":{"output":2}}`, `{"usage":{}}`, `{"usage":null}`, `{"model":"a\u0041\ud800"}`, `{"model":"a` + "\xff\x7f" + `"}`,
		`{"stream":true,"estimated":false}`, `{"stream":1}`, `{"later":[1,{}]}`, `{"seq":1}`, `{"seq" : 1}`, `{"seq":1,}`, `{"model":"a` + "\n" + `"}`, `1`, ``,
	} {
		f.Add([]byte(`{"v":1,"batch_id":"b","session":3,"events":[` + events + `]}`))
	}
	f.Add([]byte(`{"v":1,"batch_id":"b","session":3,"events":[{}]} `))
	f.Add([]byte(`{"v":1,"batch_id":"b","session":3,"events":[{}]}]`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		session, got, ok := scanBatch(payload)
		if !ok {
			return
		}
		wantSession, want, err := unmarshalBatch(payload)
		if err != nil {
			t.Fatalf("%q: the scanner decoded a message that encoding/json rejects: %v", payload, err)
		}
		if !reflect.DeepEqual(got, want) || session != wantSession {
			t.Errorf("%q: session %d, events\n%+v; encoding/json: session %d, events\n%+v", payload, session, got, wantSession, want)
		}
	})
}

func TestDecodeBatchDecodesTheEventsBesideAnInvalidOne(t *testing.T) {
	t.Parallel()
	session, events, err := DecodeBatch(message(t, Usage{Seq: 1}, map[string]any{"seq": 2, "cost": "3"}, map[string]any{"seq": 4, "later": 1}))
	if err != nil || session != 7 || len(events) != 3 {
		t.Fatalf("session %d, %d events, %v", session, len(events), err)
	}
	var wrong *json.UnmarshalTypeError
	if events[0].Err != nil || !errors.As(events[1].Err, &wrong) || events[2].Err != nil {
		t.Errorf("errors %v, %v, %v", events[0].Err, events[1].Err, events[2].Err)
	}
	for i, want := range []int64{1, 2, 4} {
		if events[i].Usage.Seq != want {
			t.Errorf("event %d has sequence number %d; want %d", i, events[i].Usage.Seq, want)
		}
	}
	if _, _, err := DecodeBatch([]byte(`{"events":7}`)); err == nil {
		t.Error("no error for a message that is not a batch")
	}
}

func BenchmarkDecodeBatch(b *testing.B) {
	var full Usage
	filled(b, reflect.ValueOf(&full).Elem(), 0)
	events := make([]any, 500)
	for i := range events {
		events[i] = full
	}
	payload := message(b, events...)
	for _, each := range []struct {
		name string
		read func([]byte) (int64, []BatchEvent, error)
	}{{"scanner", DecodeBatch}, {"encoding-json", unmarshalBatch}} {
		b.Run(each.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := each.read(payload); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
		})
	}
}
