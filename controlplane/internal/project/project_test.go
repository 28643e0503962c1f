package project_test

import (
	"errors"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/validation"
)

func TestEveryProblemOfANewProjectIsReported(t *testing.T) {
	t.Parallel()
	n := project.New{
		ExternalID:  strings.Repeat("x", 201),
		Description: strings.Repeat("x", 1001),
		Metadata:    map[string]string{"": "x"},
	}
	invalid, ok := errors.AsType[validation.Errors](n.Validate())
	if !ok || len(invalid) != 4 {
		t.Errorf("got %v; want name, external_id, description and metadata", invalid)
	}
	n = project.New{Name: "Example"}
	if err := n.Validate(); err != nil {
		t.Errorf("got %v for a project with a name only", err)
	}
}

func TestPatchChangesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	before := project.Project{
		Name:        "one",
		Description: "text",
		Metadata:    map[string]string{"a": "b"},
		Rev:         7,
	}
	after, changed, err := (&project.Patch{Name: new("two")}).Apply(before)
	if err != nil || !changed || after.Name != "two" || after.Description != "text" || after.Metadata["a"] != "b" {
		t.Errorf("got %+v, %v, %v; want another name only", after, changed, err)
	}
	if _, changed, err := (&project.Patch{Name: new("one"), Metadata: &map[string]string{"a": "b"}}).Apply(before); err != nil || changed {
		t.Errorf("the values of before: got %v, %v; want no change", changed, err)
	}
	match, err := etag.Parse(string(etag.OfRev(6)))
	if err != nil {
		t.Fatal(err)
	}
	older := project.Patch{Match: match, Name: new("two")}
	if _, _, err := older.Apply(before); err == nil {
		t.Error("a change of an older version was applied")
	}
}
