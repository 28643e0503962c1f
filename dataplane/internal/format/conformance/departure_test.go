package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/catalogkv"
)

// corpus returns all bodies of the suite that are accepted, by format.
func corpus(t *testing.T) map[catalogkv.Format][]string {
	t.Helper()
	bodies := map[catalogkv.Format][]string{}
	add := func(f catalogkv.Format, body string) {
		if _, e := outgoing(t, f, strict(f), format.Rules{}, body); e == nil {
			bodies[f] = append(bodies[f], body)
		}
	}
	for f, body := range formats {
		add(f, body)
		add(f, with(body, "stream", "true"))
		add(f, " \n"+strings.ReplaceAll(body, ":", " : ")+"\t")
		for _, name := range dialects[f].Policy().Names() {
			row := dialects[f].Policy().Row(name)
			add(f, with(body, row.Name, value(row)))
			for _, allowed := range row.Allow {
				add(f, with(body, row.Name, allowed))
			}
		}
	}

	files, err := filepath.Glob("testdata/requests/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var request struct{ Body json.RawMessage }
		if err := json.Unmarshal(text, &request); err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(filepath.Base(file), "-")
		add(catalogkv.Format(name), string(request.Body))
	}
	return bodies
}

// digest is the SHA-256 of the members of a body, each as it is written, but for some.
func digest(t *testing.T, body string, except ...string) [sha256.Size]byte {
	t.Helper()
	sum := sha256.New()
	decoder := json.NewDecoder(strings.NewReader(body))
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(except, name.(string)) {
			fmt.Fprintf(sum, "%q:%s\n", name, value)
		}
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// sent returns the body for a provider of a kind.
func sent(t *testing.T, f catalogkv.Format, kind catalogkv.ProviderKind, body, betas string) (out, beta string) {
	t.Helper()
	r, e := dialects[f].Read(parse(t, body))
	if e != nil {
		t.Fatal(e)
	}
	defer r.Release()
	if e := r.Check(strict(f), format.Rules{}); e != nil {
		t.Fatal(e)
	}
	target := format.Target{
		Model: "up", Policy: strict(f), Kind: kind, Betas: betas, IdentityFunc: func(id string) string { return "hash of " + id },
	}
	out = string(r.AppendUpstream(nil, target))
	_, parts := r.SpliceUpstream(nil, target)
	if spliced := string(bytes.Join(parts, nil)); spliced != out || !json.Valid([]byte(out)) {
		t.Errorf("%s goes out as %s, spliced as %s", body, out, spliced)
	}
	return out, r.Beta(strict(f))
}

// The bodies for each kind of provider are those for the maker of the models, byte for byte, but for the members of the table.
// The members that the table does not name, and that no rule of the format changes, are those of the client.
func TestBodiesDepartByTheMembersOfTheTableOnly(t *testing.T) {
	t.Parallel()
	checked := 0
	for f, bodies := range corpus(t) {
		for _, body := range bodies {
			plain, beta := sent(t, f, "", body, "")
			var client, usual map[string]json.RawMessage
			if err := json.Unmarshal([]byte(body), &client); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(plain), &usual); err != nil {
				t.Fatal(err)
			}
			var changed []string // by the rules of the format
			for name := range client {
				if !bytes.Equal(client[name], usual[name]) {
					changed = append(changed, name)
				}
			}
			for name := range usual {
				if client[name] == nil {
					changed = append(changed, name)
				}
			}

			for _, kind := range catalogkv.ProviderKinds {
				departure := format.Departures[kind][f]
				out, _ := sent(t, f, kind, body, "")
				listed := slices.Clone(departure.Removed)
				want := map[string]string{}
				for _, member := range departure.Added {
					listed, want[member.Name] = append(listed, member.Name), member.Value
				}
				if departure.BetaMember != "" {
					listed = append(listed, departure.BetaMember)
					if beta != "" {
						want[departure.BetaMember] = `["` + strings.ReplaceAll(beta, ",", `","`) + `"]`
					}
				}
				var members map[string]json.RawMessage
				if err := json.Unmarshal([]byte(out), &members); err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for _, name := range listed {
					if members[name] != nil {
						got[name] = string(members[name])
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: listed members of %s (-want +got):\n%s", kind, body, diff)
				}
				if digest(t, plain, listed...) != digest(t, out, listed...) {
					t.Errorf("%s: beside the listed members,\n%s goes out as\n%s", kind, plain, out)
				}
				if except := slices.Concat(listed, changed); digest(t, body, except...) != digest(t, out, except...) {
					t.Errorf("%s: the members of the client\n%s go out as\n%s", kind, body, out)
				}
				checked++
			}
		}
	}
	t.Logf("%d bodies", checked)
	if checked < 200 {
		t.Errorf("only %d bodies", checked)
	}
}

func TestBetasAreSentWhereTheProviderWantsThem(t *testing.T) {
	t.Parallel()
	body := with(formats[catalogkv.Messages], "context_management", `{"edits":[]}`)
	const own = "one-2026-01-01, context-management-2025-06-27"
	out, _ := sent(t, catalogkv.Messages, catalogkv.Bedrock, body, own)
	if want := `"anthropic_beta":["one-2026-01-01","context-management-2025-06-27"]`; !strings.Contains(out, want) {
		t.Errorf("got %s; want %s", out, want)
	}
	if out, _ := sent(t, catalogkv.Messages, catalogkv.Vertex, body, own); strings.Contains(out, "beta") {
		t.Errorf("got %s", out)
	}
	if out, _ := sent(t, catalogkv.Messages, catalogkv.Bedrock, formats[catalogkv.Messages], ""); strings.Contains(out, "beta") {
		t.Errorf("got %s", out)
	}
}
