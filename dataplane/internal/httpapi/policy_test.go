package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

// A client's parameter is never dropped because the chosen route does not accept it.
func TestRouteThatRefusesAParameterGetsNoCall(t *testing.T) {
	t.Parallel()
	own := []catalogkv.Params{
		{"temperature": {Policy: "reject", Allow: []json.RawMessage{json.RawMessage("1")}}, "top_k": {Policy: "forward"}},
		{"temperature": {Policy: "reject"}, "seed": {Policy: "reject"}, "stop": {Policy: "drop"}},
		nil,
	}
	tests := []struct {
		name, parameter string
		// routes is the number of the model's routes; served is the one that gets the request, -1 for none.
		routes, served int
		want           apiError
	}{
		{"no route refuses", `"top_p":1`, 3, 0, apiError{}},
		{"the first two refuse", `"temperature":0.5`, 3, 2, apiError{}},
		{"all refuse", `"temperature":0.5`, 2, -1, apiError{Status: 400, Code: "unsupported_parameter", Param: "temperature", Final: true}},
		{"a value that means the default", `"temperature":1`, 2, 0, apiError{}},
		{"an explicit null", `"temperature":null`, 2, 0, apiError{}},
		{"the second refuses", `"seed":1`, 2, 0, apiError{}},
		{"the first offers more than the model", `"top_k":5`, 3, 0, apiError{}},
		{"more than the model, but not with this", `"top_k":5,"temperature":0.5`, 3, -1, apiError{Status: 400, Code: "unsupported_parameter", Param: "top_k", Final: true}},
		{"parameter without a row", `"warp":5`, 3, -1, apiError{Status: 400, Code: "unsupported_parameter", Param: "warp", Final: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answers := slices.Repeat([]http.HandlerFunc{jsonAnswer(http.StatusOK, chatJSON)}, tt.routes)
			g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
				for i := range m.Routes {
					if own[i] != nil {
						m.Routes[i].Params = map[catalogkv.Format]catalogkv.Params{catalogkv.Chat: own[i]}
					}
				}
			}}, answers...)
			got := g.post("/v1/chat/completions", `{"model":"text","messages":[],`+tt.parameter+`}`)
			if tt.served < 0 {
				if diff := cmp.Diff(tt.want, got.apiError(t), ignoreTexts); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			} else if got.status != http.StatusOK {
				t.Errorf("got %d %s", got.status, got.body)
			}
			for i, s := range g.sims {
				if n := len(s.received()); n != 0 && i != tt.served || n == 0 && i == tt.served {
					t.Errorf("route %d got %d requests; route %d should have served", i, n, tt.served)
				}
			}
		})
	}
}
