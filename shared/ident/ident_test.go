package ident

import (
	"strings"
	"testing"
	"time"
)

func TestNewAtMakesVersion7(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_795_000_000_123)
	u := NewAt(now)
	if got := u[6] >> 4; got != 7 {
		t.Errorf("version %d; want 7", got)
	}
	if got := u[8] >> 6; got != 2 {
		t.Errorf("variant %d; want 2", got)
	}
	if !u.Time().Equal(now) {
		t.Errorf("time %v; want %v", u.Time(), now)
	}
	if NewAt(now) == u {
		t.Error("two identifiers of one time are equal")
	}
	if later := Request.Format(NewAt(now.Add(time.Millisecond))); later <= Request.Format(u) {
		t.Error("a later identifier does not sort later")
	}
}

func TestParseIsTheInverseOfFormat(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Account, Key, Provider, Route, Request, Video} {
		u := New()
		got, err := k.Parse(k.Format(u))
		if err != nil || got != u {
			t.Errorf("%s: got %v, %v; want %v", k, got, err, u)
		}
	}
}

func TestParseRejectsOtherTexts(t *testing.T) {
	t.Parallel()
	good := Account.New()
	for name, text := range map[string]string{
		"empty": "", "other kind": Key.New(), "short": good[:len(good)-1], "long": good + "0",
		"upper case": "acc_" + strings.ToUpper(good[4:]) + "", "not hexadecimal": "acc_" + strings.Repeat("g", 32),
	} {
		if name == "upper case" && text == good {
			continue
		}
		if _, err := Account.Parse(text); err == nil {
			t.Errorf("%s: %q was accepted", name, text)
		}
	}
}

func TestRangeOfABeginning(t *testing.T) {
	t.Parallel()
	id, err := Request.Parse("req_0192f0c1d2e37a4b8c5d6e7f8091a2b3")
	if err != nil {
		t.Fatal(err)
	}
	lowest, highest, ok := Request.Range("req_0192f0c1d2e37a4b8c5d6e7f8091a2b")
	if !ok || Request.Format(lowest) != "req_0192f0c1d2e37a4b8c5d6e7f8091a2b0" || Request.Format(highest) != "req_0192f0c1d2e37a4b8c5d6e7f8091a2bf" {
		t.Errorf("got %s to %s, %t", Request.Format(lowest), Request.Format(highest), ok)
	}
	if lowest, highest, ok := Request.Range(Request.Format(id)); !ok || lowest != id || highest != id {
		t.Errorf("the range of an id is %s to %s, %t", Request.Format(lowest), Request.Format(highest), ok)
	}
	if _, _, ok := Request.Range("req_"); !ok {
		t.Error("every id begins with req_")
	}
	for _, text := range []string{"", "re", "req", "acc_01", "req_0G", "req_0A", "req_0192f0c1d2e37a4b8c5d6e7f8091a2b3c"} {
		if _, _, ok := Request.Range(text); ok {
			t.Errorf("%q has a range", text)
		}
	}
}
