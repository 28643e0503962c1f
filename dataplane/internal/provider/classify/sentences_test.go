package classify

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// sentences are subjects and predicates of one class in one language.
type sentences struct {
	Code       string   `json:"code"`
	CodeAlso   []string `json:"code_also"`
	Subjects   []string `json:"subjects"`
	Predicates []string `json:"predicates"`
}

// The class of a sentence is that of whose thing it names and what is wrong with it, whatever the combination, in each
// language. The status 400 says nothing of it.
func TestSubjectsAndPredicatesOfEveryLanguage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/sentences.json")
	if err != nil {
		t.Fatal(err)
	}
	var languages map[string][]sentences
	if err := json.Unmarshal(raw, &languages); err != nil {
		t.Fatal(err)
	}

	count := 0
	for language, groups := range languages {
		between := " "
		if language == "zh" || language == "ja" {
			between = ""
		}
		for _, g := range groups {
			for _, subject := range g.Subjects {
				for _, predicate := range g.Predicates {
					count++
					text := strings.TrimSpace(subject + between + predicate)
					body, err := json.Marshal(map[string]any{"error": map[string]string{"message": text}})
					if err != nil {
						t.Fatal(err)
					}
					v := Classify(Answer{Format: "chat", Status: 400, Body: body})
					if v.Code != g.Code && !slices.Contains(g.CodeAlso, v.Code) {
						t.Errorf("%s: %s: got %s by rule %d; want %s", language, text, v.Code, v.Rule, g.Code)
					}
				}
			}
		}
	}
	if count < 3600 {
		t.Errorf("only %d sentences", count)
	}
}
