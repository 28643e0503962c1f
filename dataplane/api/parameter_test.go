package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	"modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/format/videos"
)

var actions = map[format.Action]string{
	format.Reject: "reject", format.Forward: "forward", format.Force: "force", format.Drop: "drop", format.Clamp: "clamp", format.Replace: "replace",
}

// The schema of a request lists exactly the parameters that the format accepts,
// with the policy of each, and the description names those that it refuses.
func TestRequestSchemasAreTheParameterTables(t *testing.T) {
	t.Parallel()
	tested, doc := load(t)
	for _, tt := range []struct {
		operation, schema string
		policy            *format.Policy
	}{
		{"createChatCompletion", "ChatRequest", chat.Dialect{}.Policy()},
		{"createResponse", "ResponsesRequest", responses.Dialect{}.Policy()},
		{"createMessage", "MessagesRequest", messages.Dialect{}.Policy()},
		{"createImages", "ImageRequest", images.Dialect{}.Policy()},
		{"createVideo", "VideoRequest", videos.Dialect{}.Policy()},
	} {
		schema := member(member(member(tested.Root(), "components"), "schemas"), tt.schema)
		got := map[string]string{}
		for name, property := range member(schema, "properties") {
			got[name], _ = property.(map[string]any)["x-gateway"].(string)
		}
		want := map[string]string{}
		required := []string{"model"} // every format requires it before it uses its table
		for _, name := range tt.policy.Names() {
			row := tt.policy.Row(name)
			description := doc.Operation(tt.operation).Description
			switch parent, child, nested := strings.Cut(name, "."); {
			case nested:
				text, _ := member(member(schema, "properties"), parent)["description"].(string)
				if !strings.Contains(text, "`"+child) && !strings.Contains(text, `"`+child) && len(row.Deny) == 0 {
					t.Errorf("%s: the description of %s does not name %s", tt.schema, parent, child)
				}
			case row.Action == format.Reject && len(row.Allow) == 0:
				if !strings.Contains(description, "`"+name+"`") {
					t.Errorf("%s: the description does not name the refused parameter %s", tt.operation, name)
				}
			default:
				want[name] = actions[row.Action]
			}
			if row.Required {
				required = append(required, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: parameters (-code +document):\n%s", tt.schema, diff)
		}
		var documented []string
		for _, name := range schema["required"].([]any) {
			documented = append(documented, name.(string))
		}
		slices.Sort(required)
		slices.Sort(documented)
		if !slices.Equal(required, documented) {
			t.Errorf("%s: required are %q; the document has %q", tt.schema, required, documented)
		}
	}
}
