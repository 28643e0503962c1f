package etag_test

import (
	"errors"
	"testing"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
)

func TestIfMatchConditions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, header      string
		malformed, fits   bool
		fitsWhenThereNone bool
	}{
		{name: "none", header: "", fits: true, fitsWhenThereNone: true},
		{name: "any", header: "*", fits: true},
		{name: "the tag", header: `"17"`, fits: true},
		{name: "another tag", header: `"16"`},
		{name: "one of several", header: `"a,b" , "17"`, fits: true},
		{name: "a weak tag never fits", header: `W/"17"`},
		{name: "weak and strong", header: `W/"1","17"`, fits: true},
		{name: "an empty tag", header: `""`},
		{name: "no quotes", header: `17`, malformed: true},
		{name: "an open quote", header: `"17`, malformed: true},
		{name: "only a quote", header: `"`, malformed: true},
		{name: "no comma", header: `"17" "18"`, malformed: true},
		{name: "nothing behind the comma", header: `"17",`, malformed: true},
		{name: "star among tags", header: `"17", *`, malformed: true},
	}
	for _, tt := range tests {
		m, err := etag.Parse(tt.header)
		if _, refused := validation.As(err); refused != tt.malformed {
			t.Errorf("%s: got %v; want malformed %v", tt.name, err, tt.malformed)
		}
		if tt.malformed {
			continue
		}
		if err := m.Check(etag.OfRev(17)); (err == nil) != tt.fits || (err != nil && !errors.Is(err, etag.ErrMismatch)) {
			t.Errorf("%s: got %v; want it to fit: %v", tt.name, err, tt.fits)
		}
		if err := m.CheckAbsent(); (err == nil) != tt.fitsWhenThereNone {
			t.Errorf("%s: got %v where there is no object; want it to fit: %v", tt.name, err, tt.fitsWhenThereNone)
		}
	}
}

func TestConditionThatThereIsNoObject(t *testing.T) {
	t.Parallel()
	m, err := etag.ParseForPut("", " * ")
	if err != nil || !errors.Is(m.Check(etag.OfRev(17)), etag.ErrExists) || m.CheckAbsent() != nil {
		t.Errorf("got %+v, %v; want it satisfied only where there is no object", m, err)
	}
	if m, err := etag.ParseForPut(`"17"`, ""); err != nil || m.Check(etag.OfRev(17)) != nil || m.CheckAbsent() == nil {
		t.Errorf("got %+v, %v; want the condition of If-Match", m, err)
	}
	for _, headers := range [][2]string{{"", `"17"`}, {`"17"`, "*"}, {"*", "*"}} {
		if _, err := etag.ParseForPut(headers[0], headers[1]); err == nil {
			t.Errorf("If-Match %s with If-None-Match %s is accepted", headers[0], headers[1])
		}
	}
}

func TestTagOfContent(t *testing.T) {
	t.Parallel()
	tag := func(v any) etag.Tag {
		text, err := etag.OfContent(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	a := tag(map[string]int{"a": 1, "b": 2})
	if a != tag(map[string]int{"b": 2, "a": 1}) || a == tag(map[string]int{"a": 2, "b": 1}) {
		t.Errorf("%s does not stand for its content", a)
	}
	if _, err := etag.OfContent(func() {}); err == nil {
		t.Error("what has no JSON form got a tag")
	}
	m, err := etag.Parse(string(a))
	if err != nil || m.Check(a) != nil {
		t.Errorf("%s does not fit itself: %v", a, err)
	}
}
