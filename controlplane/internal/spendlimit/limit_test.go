package spendlimit_test

import (
	"errors"
	"testing"
	"time"

	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
)

func problems(err error) int {
	invalid, _ := errors.AsType[validation.Errors](err)
	return len(invalid)
}

func TestEveryProblemOfANewLimitIsReported(t *testing.T) {
	t.Parallel()
	day := limit.Window{Period: limit.Day, TimeZone: "UTC"}
	for name, c := range map[string]struct {
		n    spendlimit.New
		want int
	}{
		"of the account":          {spendlimit.New{Amount: new(money.Unit), Window: day}, 0},
		"of a key and a project":  {spendlimit.New{Amount: new(money.Unit), Window: day, ProjectID: &project.ID{}, KeyID: &key.ID{}}, 1},
		"without an amount":       {spendlimit.New{Window: day}, 1},
		"of a negative amount":    {spendlimit.New{Amount: new(-money.Unit), Window: day}, 1},
		"of prefixes":             {spendlimit.New{Amount: new(money.Unit), Window: day, Models: []string{"example-*", "*"}}, 0},
		"of an empty model":       {spendlimit.New{Amount: new(money.Unit), Window: day, Models: []string{""}}, 1},
		"of a pattern":            {spendlimit.New{Amount: new(money.Unit), Window: day, Models: []string{"a*b", "**"}}, 2},
		"of a window without end": {spendlimit.New{Amount: new(money.Unit), Window: limit.Window{Period: "fortnight"}}, 1},
	} {
		if err := c.n.Validate(); problems(err) != c.want {
			t.Errorf("a limit %s: got %v; want %d problems", name, err, c.want)
		}
	}
}

func TestRaiseIsAboveTheAmountAndEnds(t *testing.T) {
	t.Parallel()
	l, until := spendlimit.Limit{Amount: 10 * money.Unit}, time.Now().Add(time.Hour)
	raise := spendlimit.Patch{SetRaise: true, RaisedTo: new(20 * money.Unit), RaisedUntil: &until}
	raised, err := raise.Apply(l)
	if err != nil || raise.Validate() != nil || *raised.RaisedTo != 20*money.Unit || !raised.RaisedUntil.Equal(until.Truncate(time.Millisecond)) {
		t.Fatalf("got %+v, %v", raised, err)
	}
	if ended, err := (&spendlimit.Patch{SetRaise: true}).Apply(raised); err != nil || ended.RaisedTo != nil || ended.RaisedUntil != nil {
		t.Errorf("an end of the raise: got %+v, %v", ended, err)
	}
	below := spendlimit.Patch{SetRaise: true, RaisedTo: new(10 * money.Unit), RaisedUntil: &until}
	if _, err := below.Apply(l); problems(err) != 1 {
		t.Errorf("a raise to the amount: got %v", err)
	}
	if err := (&spendlimit.Patch{SetRaise: true, RaisedTo: new(20 * money.Unit)}).Validate(); problems(err) != 1 {
		t.Errorf("a raise without an end: got %v", err)
	}
	past := time.Now().Add(-time.Second)
	if err := (&spendlimit.Patch{SetRaise: true, RaisedTo: new(20 * money.Unit), RaisedUntil: &past}).Validate(); problems(err) != 1 {
		t.Errorf("a raise that has ended: got %v", err)
	}
}
