package classify

import (
	"bufio"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// answeredAt is the arrival time of all cases.
var answeredAt = time.Date(2025, 11, 21, 8, 0, 0, 0, time.UTC)

// errorCase is one line of a file in testdata. A member that Expect leaves out is not
// checked.
type errorCase struct {
	ID       string            `json:"id"`
	Provider string            `json:"provider"`
	Format   string            `json:"format"`
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
	Stream   bool              `json:"stream"`
	Expect   struct {
		Status     *int     `json:"status"`
		Code       string   `json:"code"`
		CodeAlso   []string `json:"code_also"`
		Param      *string  `json:"param"`
		RetryAfter *float64 `json:"retry_after"`
	} `json:"expect"`
	CodeAlso []string `json:"code_also"`
}

func readCases(t testing.TB, path string) []errorCase {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []errorCase
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var c errorCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

func (c errorCase) answer() Answer {
	h := http.Header{}
	for k, v := range c.Headers {
		h.Set(k, v)
	}
	return Answer{Format: c.Format, Status: c.Status, Header: h, Body: []byte(c.Body), Stream: c.Stream, Now: answeredAt}
}

// check fails the test for each part of the verdict that differs from the expected one.
func (c errorCase) check(t *testing.T) {
	t.Helper()
	v := Classify(c.answer())
	accepted := append([]string{c.Expect.Code}, append(c.Expect.CodeAlso, c.CodeAlso...)...)
	if !slices.Contains(accepted, v.Code) {
		t.Errorf("%s: got code %s (%s, rule %d); want %v\n\tbody %.300s", c.ID, v.Code, v.Class, v.Rule, accepted, c.Body)
		return
	}
	if s := c.Expect.Status; s != nil && v.Code == c.Expect.Code && v.Status != *s {
		t.Errorf("%s: got status %d (rule %d); want %d\n\tbody %.300s", c.ID, v.Status, v.Rule, *s, c.Body)
	}
	if p := c.Expect.Param; p != nil && !sameParam(*p, v.Param) {
		t.Errorf("%s: got param %q; want %q\n\tbody %.300s", c.ID, v.Param, *p, c.Body)
	}
	if r := c.Expect.RetryAfter; r != nil && math.Abs(v.RetryAfter.Seconds()-*r) > 1 {
		t.Errorf("%s: got pause %v; want %vs\n\tbody %.300s", c.ID, v.RetryAfter, *r, c.Body)
	}
}

func sameParam(want, got string) bool {
	short := func(s string) string { return plainName(firstSegment(s)) }
	return short(want) == short(got)
}

func TestCasesAreClassifiedAsExpected(t *testing.T) {
	t.Parallel()
	for name, atLeast := range map[string]int{
		"cases.jsonl":     695,
		"collected.jsonl": 189,
		"heldout.jsonl":   246,
		"kinds.jsonl":     514,
		"unseen.jsonl":    198,
		"fresh.jsonl":     214,
		"public.jsonl":    535,
		"vendors.jsonl":   342,
		"languages.jsonl": 372,
		"owners.jsonl":    425,
		"strangers.jsonl": 260,
		"searched.jsonl":  225,
		"found.jsonl":     200,
		"unlike.jsonl":    71,
		"wide.jsonl":      426,
		"phrases.jsonl":   1223,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases := readCases(t, filepath.Join("testdata", name))
			if len(cases) < atLeast {
				t.Errorf("got %d cases; want at least %d", len(cases), atLeast)
			}
			for _, c := range cases {
				c.check(t)
			}
		})
	}
}
