package classify

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
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

// errorCase is one line of a case collection. A missing or null member of
// Expect makes no demand.
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
		Type       *string  `json:"type"`
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

// score counts how much of a collection came out right.
type score struct {
	cases, code             int
	params, paramsRight     int
	retries, retriesRight   int
	wrongCodes, wrongFields []string
}

func grade(t testing.TB, cases []errorCase) score {
	t.Helper()
	var s score
	for _, c := range cases {
		v := Classify(c.answer())
		s.cases++
		accepted := append([]string{c.Expect.Code}, append(c.Expect.CodeAlso, c.CodeAlso...)...)
		wrong := ""
		switch {
		case !slices.Contains(accepted, v.Code):
			wrong = "code"
		case v.Code == c.Expect.Code && c.Expect.Status != nil && *c.Expect.Status != v.Status:
			wrong = "status"
		}
		if wrong == "" {
			s.code++
		} else {
			s.wrongCodes = append(s.wrongCodes, c.ID)
			t.Logf("%s: got %d %s (%s, rule %d); want %d %v\n\tbody %.300s", c.ID, v.Status, v.Code, v.Class, v.Rule, deref(c.Expect.Status), accepted, c.Body)
			continue
		}
		if p := c.Expect.Param; p != nil {
			s.params++
			if sameParam(*p, v.Param) {
				s.paramsRight++
			} else {
				s.wrongFields = append(s.wrongFields, c.ID)
				t.Logf("%s: got param %q; want %q\n\tbody %.300s", c.ID, v.Param, *p, c.Body)
			}
		}
		if r := c.Expect.RetryAfter; r != nil {
			s.retries++
			if diff := v.RetryAfter.Seconds() - *r; diff >= -1 && diff <= 1 {
				s.retriesRight++
			} else {
				s.wrongFields = append(s.wrongFields, c.ID)
				t.Logf("%s: got pause %v; want %vs\n\tbody %.300s", c.ID, v.RetryAfter, *r, c.Body)
			}
		}
	}
	t.Logf("codes %d/%d, params %d/%d, pauses %d/%d", s.code, s.cases, s.paramsRight, s.params, s.retriesRight, s.retries)
	return s
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func sameParam(want, got string) bool {
	short := func(s string) string { return plainName(firstSegment(s)) }
	return short(want) == short(got)
}

func TestOwnCases(t *testing.T) {
	cases := readCases(t, filepath.Join("testdata", "cases.jsonl"))
	if len(cases) < 150 {
		t.Fatalf("got %d cases; want at least 150", len(cases))
	}
	s := grade(t, cases)
	if len(s.wrongCodes)+len(s.wrongFields) > 0 {
		t.Errorf("wrong codes: %v; wrong fields: %v", s.wrongCodes, s.wrongFields)
	}
}

// TestCollectedCases reads a collection of recorded answers that lies beside
// the repository, where there is one.
func TestCollectedCases(t *testing.T) {
	path := filepath.Join("..", "..", "..", "..", "..", "shared", "errors", "cases.jsonl")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no collection of recorded answers beside the repository")
	}
	s := grade(t, readCases(t, path))
	if s.code*100 < s.cases*97 {
		t.Errorf("codes: got %d of %d right; want 97 %%: %v", s.code, s.cases, s.wrongCodes)
	}
	fields, right := s.params+s.retries, s.paramsRight+s.retriesRight
	if right*100 < fields*95 {
		t.Errorf("parameters and pauses: got %d of %d right; want 95 %%: %v", right, fields, s.wrongFields)
	}
}
