package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/catalogkv"
)

// testdata/requests has the layout of requests that agents and tool runners send with their default settings. The texts
// are made up.
func TestDefaultRequestsOfClientsAreAccepted(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/requests/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var request struct {
				About string          `json:"about"`
				Body  json.RawMessage `json:"body"`
				// Refused is the parameter of the refusal, LeavesOut lists words of the body that are not sent.
				Refused   string   `json:"refused"`
				LeavesOut []string `json:"leaves_out"`
				Beta      string   `json:"beta"`
			}
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&request); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(file), "-")
			f := catalogkv.Format(name)
			if request.Refused != "" {
				if _, e := outgoing(t, f, dialects[f].Policy(), format.Rules{}, string(request.Body)); !refused(e, request.Refused) {
					t.Errorf("%s: got %v; want a refusal of %s", request.About, e, request.Refused)
				}
				return
			}
			checkDefaultRequest(t, f, string(request.Body), request.LeavesOut, request.Beta)
		})
	}
}

// checkDefaultRequest checks which parts of a request are sent, and that its tools of the client are.
func checkDefaultRequest(t *testing.T, f catalogkv.Format, body string, leavesOut []string, beta string) {
	t.Helper()
	p := dialects[f].Policy()
	out, e := outgoing(t, f, p, format.Rules{}, body)
	if e != nil {
		t.Fatalf("refused: %v", e)
	}
	for _, word := range leavesOut {
		if !strings.Contains(body, word) || strings.Contains(out, word) {
			t.Errorf("%s: want it in the received body only; sent is %s", word, out)
		}
	}
	tools := func(text string) (names []string) {
		var all struct {
			Tools, Input []struct {
				Type, Name string
				Tools      []struct{ Type, Name string }
			}
		}
		// The input of other formats has another layout, or there is none.
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		for _, holder := range append(all.Tools, all.Input...) {
			if holder.Type != "web_search" {
				names = append(names, holder.Type+" "+holder.Name)
			}
			for _, tool := range holder.Tools {
				if tool.Type != "web_search" {
					names = append(names, tool.Type+" "+tool.Name)
				}
			}
		}
		return names
	}
	if received, sent := tools(body), tools(out); !reflect.DeepEqual(received, sent) || len(sent) == 0 {
		t.Errorf("the tools %q are sent as %q", received, sent)
	}
	r, _ := dialects[f].Read(parse(t, body))
	defer r.Release()
	if e := r.Check(p, format.Rules{}); e != nil {
		t.Fatal(e)
	}
	if got := r.Beta(p); got != beta {
		t.Errorf("the beta features are %q; want %q", got, beta)
	}
}
