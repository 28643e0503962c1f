package classify

import "testing"

func TestExpressionsAreValid(t *testing.T) {
	t.Parallel()
	for _, e := range expressions {
		e.get() // it panics if the syntax is not valid
	}
	spacedNames()
	if len(expressions) < 50 {
		t.Errorf("only %d expressions", len(expressions))
	}
}

func TestRuleTableIsReadWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	if len(table().passes) == 0 {
		t.Error("the table is empty")
	}
}
