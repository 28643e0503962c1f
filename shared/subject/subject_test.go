package subject

import (
	"regexp"
	"strings"
	"testing"
)

func FuzzCatalogKey(f *testing.F) {
	for _, name := range []string{"gpt-4o", "vendor/model:free", "a b.c*d>e", "", "=", "模型"} {
		f.Add(name)
	}
	valid := regexp.MustCompile(`^model\.[-/_=a-zA-Z0-9]*$`)
	f.Fuzz(func(t *testing.T, name string) {
		key := CatalogKey(KindModel, name)
		if !valid.MatchString(key) {
			t.Errorf("%q is not a valid bucket key", key)
		}
		kind, back, ok := ParseCatalogKey(key)
		if !ok || kind != KindModel || back != name {
			t.Errorf("%q read back as %q, %q, %v", name, kind, back, ok)
		}
	})
}

func TestParseCatalogKeyRejectsMalformedKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"head", "model.=", "model.=4", "model.=ZZ"} {
		if _, _, ok := ParseCatalogKey(key); ok {
			t.Errorf("%q was accepted", key)
		}
	}
}

func FuzzSubjectsNameTheirProxy(f *testing.F) {
	for _, name := range []string{"dataplane-0", "host.example.org", "a b.c*d>e", "", "=", "模型"} {
		f.Add(name, int64(7))
	}
	f.Fuzz(func(t *testing.T, name string, session int64) {
		usage := Usage(name, session)
		if proxy, of, ok := UsageOf(usage); !ok || proxy != name || of != session {
			t.Errorf("%q read back as %q, %d, %v", usage, proxy, of, ok)
		}
		request := From(Register, name)
		if Sender(request) != name || strings.Count(request, ".") != 3 || strings.ContainsAny(request, "*> ") {
			t.Errorf("%q is from %q; want %q and one token more", request, Sender(request), name)
		}
		if reply := Inbox(name) + ".x"; !InInbox(reply, name) || InInbox(reply, name+"2") {
			t.Errorf("%q is not in the inbox of %q alone", reply, name)
		}
	})
}

func TestUsageOfRejectsOtherSubjects(t *testing.T) {
	t.Parallel()
	for _, published := range []string{"mgw.usage.7", "mgw.usage.a.b", "mgw.usage.=4.7", "mgw.usage..7", "mgw.videojob.a.7"} {
		if proxy, session, ok := UsageOf(published); ok {
			t.Errorf("%q was read as %q, %d", published, proxy, session)
		}
	}
}

func TestAnswersGoOnlyToSubjectsOfPushedMessages(t *testing.T) {
	t.Parallel()
	if to, ok := Answer(NewAnswer("x"), "a.b"); !ok || to != "mgw.answer.x.a=2Eb" || Sender(to) != "a.b" {
		t.Errorf("got %q, %v", to, ok)
	}
	if to, ok := Answer(KeyChange, "a"); ok {
		t.Errorf("replies on %q; want no reply", to)
	}
}
