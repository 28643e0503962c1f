package chaos

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the tables of outages and failures in docs")

// A view is what clients of one kind get during an outage.
type view string

const (
	// goesOn: the answer is complete.
	goesOn view = "continues"
	// served: every request is answered.
	served view = "served"
	// untilLapse: answered until the proxy is not fresh any more, then 503.
	untilLapse view = "served for up to `session.window`, then 503"
	// partly: some are answered, the others get 503.
	partly view = "served or 503"
	// unavailable: every request gets 503.
	unavailable view = "503"
)

// The kinds of clients. Each sends one request after the other to one proxy.
const (
	running = "a request that runs"
	used    = "a key without a limit, in use, of an account with money"
	limited = "a key with a spend limit, in use"
	unused  = "a key that the proxy has not seen"
)

// kinds are the rows of each outage.
var kinds = []string{running, used, limited, unused}

// An outage is a part of the table: for each length, what each kind of client gets.
type outage struct {
	// name tells operators what fails.
	name string
	play player
	// cells has the views by length, in the order of kinds.
	cells cells
}

type cells map[time.Duration][4]view

// The lengths of outages in the table. Nothing changes after proxies have lapsed, so that the last one stands for all longer ones.
var lengths = []time.Duration{short, minute, long30}

const short, minute, long30 = 10 * time.Second, time.Minute, 30 * time.Minute

// The views of clients of a proxy that stops after a time, if nobody reaches it.
var (
	lapses = cells{
		short:  {goesOn, served, served, unavailable},
		minute: {goesOn, untilLapse, untilLapse, unavailable},
		long30: {goesOn, untilLapse, untilLapse, unavailable},
	}
	servesOn = sameForAll([4]view{goesOn, served, served, served})
)

func sameForAll(views [4]view) cells { return cells{short: views, minute: views, long30: views} }

// outages are the table of docs/operations/outages.md. TestOutages plays each cell, and fails if clients see
// something else. Change a cell here and run make generate.
var outages = []outage{
	{"every control plane is unavailable", controlPlanesAway, servesOn},
	{"Postgres is unavailable", postgresAway, servesOn},
	{"one of three NATS servers is unavailable", natsServerAway, servesOn},
	{"two of three NATS servers are unavailable", natsQuorumAway, cells{
		short:  {goesOn, served, served, partly},
		minute: {goesOn, untilLapse, untilLapse, partly},
		long30: {goesOn, untilLapse, untilLapse, partly},
	}},
	{"one proxy is cut off from NATS; the others serve", proxyCutOff, lapses},
}

// lengthName returns a length as operators write it.
func lengthName(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}

// table returns the table in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| outage | client |")
	for _, d := range lengths {
		b.WriteString(" " + lengthName(d) + " |")
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(lengths)) + "\n")
	for _, o := range outages {
		for i, kind := range kinds {
			name := o.name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "| %s | %s |", name, kind)
			for _, d := range lengths {
				fmt.Fprintf(&b, " %s |", o.cells[d][i])
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestTableOfOutagesReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	keepUpToDate(t, "../../../docs/operations/outages.md", "outages", table())
}

// keepUpToDate compares a section of a page with what it should be, or writes it with the flag -update.
func keepUpToDate(t *testing.T, page, section, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->"
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no section %s", page, section)
	}
	want = before + begin + want + end + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run make generate", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o600); err != nil { // it exists and keeps its mode
		t.Fatal(err)
	}
}
