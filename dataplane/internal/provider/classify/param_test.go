package classify

import "testing"

func TestFindParam(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"param member", `{"error":{"message":"no","param":"top_p"}}`, "top_p"},
		{"empty param member", `{"error":{"message":"'seed' must be an integer","param":""}}`, "seed"},
		{"param member holds a sentence", `{"error":{"message":"bad","param":"Unknown parameter: 'top_k'."}}`, "top_k"},
		{"param member holds a path and a sentence", `{"error":{"message":"no","param":"messages[2] content must not be empty"}}`, "messages"},
		{"path of arrows", `At body -> response_format -> type: Input should be 'text'`, "response_format"},
		{"only value that is accepted", `This model only supports incremental_output set to True.`, "incremental_output"},
		{"path kept", `{"error":{"message":"no","param":"messages[0].role"}}`, "messages[0].role"},
		{"loc without its container", `{"detail":[{"loc":["body","temperature"],"msg":"Input should be less than 2"}]}`, "temperature"},
		{"loc of a Python program", `{"message":"[{'type': 'extra_forbidden', 'loc': ('body', 'foo'), 'msg': 'Extra inputs are not permitted'}]"}`, "foo"},
		{"field violation", `{"error":{"details":[{"fieldViolations":[{"field":"generation_config.top_k","description":"out of range"}]}]}}`, "top_k"},
		{"keyword argument", `create() got an unexpected keyword argument 'min_p'`, "min_p"},
		{"unknown name", `Unknown name "logit_bias" at 'generation_config': Cannot find field.`, "logit_bias"},
		{"path before a colon", `tools.0.function.name: Extra inputs are not permitted`, "tools.0.function.name"},
		{"name before a colon", `max_tokens: 9 > 8, which is the maximum`, "max_tokens"},
		{"argument supplied", `Unrecognized request argument supplied: best_of`, "best_of"},
		{"argument in camel case", `Argument not supported on this model: presencePenalty`, "presencePenalty"},
		{"backticks", "`temperature` must be strictly positive", "temperature"},
		{"bare name", `temperature must be non-negative, got -1.0.`, "temperature"},
		{"range of", `the valid range of max_tokens is [1, 8192]`, "max_tokens"},
		{"bracketed key", `extraneous key [top_k] is not permitted`, "top_k"},
		{"feature", `this model does not support tool use`, "tools"},
		{"chinese", `temperature 参数非法，取值范围 (0,1)`, "temperature"},
		{"korean", `temperature는 1.0 이하여야 합니다`, "temperature"},
		{"german", `Der Wert von temperature muss zwischen 0 und 1 liegen`, "temperature"},
		{"name at the end", `지원하지 않는 파라미터입니다: presence_penalty`, "presence_penalty"},
		{"path before a sentence", `tools.3.custom.input_schema: input_schema does not support oneOf`, "tools.3.custom.input_schema"},
		{"values that would be accepted", "Failed to read the body: reasoning_effort: unknown variant `xhigh`, expected one of `low`, `medium`, `high`", "reasoning_effort"},
		{"an accepted value that is the name of a parameter", "Failed to read the body: response_format.type: unknown variant `grammar`, expected one of `text`, `json_object`", "response_format.type"},
		{"values in brackets", `The verbosity was refused: use one of ['low', 'text'] as the value of verbosity`, "verbosity"},
		{"a tool is no name", `attempted to call tool 'get_weather' which was not in request.tools`, "tools"},
		{"name in brackets after the text", `Effort 'high' is not supported by this route. Supported values: 'low'. (param: reasoning_effort)`, "reasoning_effort"},
		{"path on a line of its own", "1 validation error for Request\ntools.0.function.description\n  Input should be a valid string", "tools.0.function.description"},
		{"path after the text", `Input should be a valid number: parameters.top_p`, "top_p"},
		{"schema at a path", `tools.function.parameters is not a valid json schema, details: <At path 'properties.source': type is not defined>`, "tools.function.parameters"},
		{"a status is no name", `{"error":{"message":"no","param":"400"}}`, ""},
		{"a noun is no name", `The request is invalid.`, ""},
		{"a model is no name", `model must be loaded`, ""},
		{"script in the member", `{"error":{"message":"no","param":"<script>alert(1)</script>"}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := findParam(unwrap([]byte(tt.body), ""), true); got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}
