package event

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/quick"
)

// This finds a member that was added to the type and not to AppendJSON.
func TestUsageAppendJSONEqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	same := func(u Usage, sparse uint64) bool {
		thinOut(reflect.ValueOf(&u).Elem(), rand.New(rand.NewPCG(sparse, 1)))
		want, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		got := u.AppendJSON([]byte("before"))
		if string(got) != "before"+string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		return !t.Failed()
	}
	if err := quick.Check(same, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// thinOut sets about half of the members to zero.
func thinOut(v reflect.Value, r *rand.Rand) {
	for _, field := range v.Fields() {
		switch {
		case field.Kind() == reflect.Struct:
			thinOut(field, r)
		case r.IntN(2) == 0:
			field.SetZero()
		}
	}
}

func TestBatchAppendJSONEqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	one, two := Usage{RequestID: "req_<1>", Model: "a \"b\" ü"}, Usage{Seq: 2}
	for _, events := range [][]json.RawMessage{{}, {one.AppendJSON(nil)}, {one.AppendJSON(nil), two.AppendJSON(nil)}} {
		m := Batch{V: 1, BatchID: "bat_1", Session: 7, Events: events}
		want, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.AppendJSON(nil); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	u := Usage{V: 1, RequestID: "req_01a200c452bb78308915fcd9f468f497", AccountID: "acc_01a200c452bb78308915fcd9f468f497", Model: "gpt", Format: "chat", Status: Completed, Cost: 17, StartedMS: 1790000000000}
	var buf []byte
	for b.Loop() {
		buf = u.AppendJSON(buf[:0])
	}
}
