package classify

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	c := Cleaner{UpstreamModels: []string{"prod-gpt4o-eu"}, ClientModel: "fast-model", Hidden: []string{"contoso", "api.vendor.example"}}
	tests := []struct{ name, text, want string }{
		{"plain text stays", "temperature must be between 0 and 2 (got 3.5).", "temperature must be between 0 and 2 (got 3.5)."},
		{"numbers are kept", "prompt is too long: 215013 tokens > 200000 maximum", "prompt is too long: 215013 tokens > 200000 maximum"},
		{"names are kept", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."},
		{"upstream model", "The model Prod-GPT4o-EU has no vision.", "The model fast-model has no vision."},
		{"upstream model with its vendor and date", "models/prod-gpt4o-eu-2025-01-31 and x/PROD-gpt4o-eu have no vision", "fast-model and fast-model have no vision"},
		{"hidden texts", "Contoso says no at api.vendor.example", "[removed] says no at [removed]"},
		{"link", "see https://platform.vendor.com/org/x?k=v) now", "see [removed]) now"},
		{"host", "connect to eu-1.inference.internal:8443 failed", "connect to [removed] failed"},
		{"mail", "write to ops@vendor.example today", "write to [removed] today"},
		{"organisation", "in organization org-AbC123def on requests", "in organization [removed] on requests"},
		{"organisation with a UUID", "organization 01234567-89ab-cdef-0123-456789abcdef is full", "organization [removed] is full"},
		{"project", "Project proj_a1B2c3D4 may not", "Project [removed] may not"},
		{"key", "Incorrect key sk-proj-abcdEFGH1234567890", "Incorrect key [removed]"},
		{"masked key", "key sk-ab***********wxyz is wrong", "key [removed] is wrong"},
		{"resource name", "arn:aws:iam::123456789012:user/ops is not", "[removed] is not"},
		{"cloud project", "projects/acme-prod-1/locations/us", "[removed]"},
		{"request id", "include the request ID req_0a1b2c3d4e5f6789 please", "include the request ID [removed] please"},
		{"UUID", "ref: 96164522-08b2-4cbf-886e-e5a38961a688", "ref: [removed]"},
		{"address", "dial tcp 10.12.0.7:443 refused", "dial tcp [removed] refused"},
		{"counts are no ids", "request (16998 tokens) exceeds the available context size (16384 tokens)", "request (16998 tokens) exceeds the available context size (16384 tokens)"},
		{"routing notes", "Bad value. Received Model Group=prod-x Available Model Group Fallbacks=None", "Bad value. [removed]"},
		{"request id in prose", "failed. Request id: 0217abcdef99", "failed. Request id: [removed]"},
		{"account number", "Your account 2100000000 has not", "Your account [removed] has not"},
		{"organisation without a digit", "in org-ipEQTdaaXnAoGTNpYtdZGpcS now", "in [removed] now"},
		{"short ids", "org-AbC123 and proj_XYZ987 and chatcmpl-AbCdEfGh", "[removed] and [removed] and [removed]"},
		{"words after a prefix", "set user_prompt, batch_size, org-specific, run-time, request_timeout", "set user_prompt, batch_size, org-specific, run-time, request_timeout"},
		{"ray", "ray 8f1a2b3c4d5e6f70, ray id 8f1a2b3c4d5e6f70-FRA", "ray [removed], ray id [removed]"},
		{"reference", "reference #1f2e3d4c5b6a now", "reference #[removed] now"},
		{"key id", "key ID: abcd1234.", "key ID: [removed]"},
		{"subscription", "subscription 1b2c3d4e is", "subscription [removed] is"},
		{"short request id", "request id 2f3a failed", "request id [removed] failed"},
		{"deployment", "deployment my-azure-deploy-01 in resource acme-openai-eastus", "deployment [removed] in resource [removed]"},
		{"pod", "pod vllm-llama-7c9d8b6f5-x2x4z died", "pod [removed] died"},
		{"path", "file /opt/vllm/entrypoints/api.py line 33", "file [removed] line 33"},
		{"path of a parameter is kept", "/messages/0/content must be text", "/messages/0/content must be text"},
		{"hexadecimal id", "at 8f1a2b3c4d5e6f70 and 1f2e3d4c5b6a", "at [removed] and [removed]"},
		{"id of several parts", "nAbCdEf-2KxYz9-8f1a2b3c4d5e6f70 failed", "[removed] failed"},
		{"base64", "token qL3vX0mTz8RkW2yB5nHc is", "token [removed] is"},
		{"long numbers are kept", "12345678901234567890 is not in range 0 to 4294967295", "12345678901234567890 is not in range 0 to 4294967295"},
		{"names of models and of schemas are kept", "Llama-3.3-70B-Instruct-Turbo takes no ResponseFormatJSONSchema", "Llama-3.3-70B-Instruct-Turbo takes no ResponseFormatJSONSchema"},
		{"markup", "<b>Bad</b> request <script>x</script>", "Bad request x"},
		{"comparison", "a < b and c > d", "a < b and c > d"},
		{"control characters", "a\x00b\x1b[31m\u202ec\r\nd", "ab[31mc d"},
		{"broken UTF-8", "bad \xff\xfe byte", "bad byte"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := c.Clean(tt.text); got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestCleanLimitsLength(t *testing.T) {
	got := Cleaner{}.Clean(strings.Repeat("界 ", 5000))
	if len(got) > maxMessage || !utf8.ValidString(got) {
		t.Errorf("got %d bytes, valid %v; want at most %d of valid text", len(got), utf8.ValidString(got), maxMessage)
	}
}

// Providers write a shorter name of the model than the route has.
func TestCleanReplacesShortModelNames(t *testing.T) {
	tests := []struct{ upstream, text, want string }{
		{"vendor-sonnet-4-5-20250929", "the maximum for vendor-sonnet-4-5 is 9", "the maximum for mine is 9"},
		{"acme/big-7b:free", "Acme/Big-7b requires moderation", "mine requires moderation"},
		{"pro-2.5", "Penalty is not enabled for models/pro-2.5-002", "Penalty is not enabled for mine"},
		{"large-latest", "large", "large"}, // a plain word
		{"ine-4", "ine-4 and mine-4", "mine and mmine"},
		{"mine", "mine-2 is mine", "mine-2 is mine"},
	}
	for _, tt := range tests {
		if got := (Cleaner{UpstreamModels: []string{tt.upstream}, ClientModel: "mine"}).Clean(tt.text); got != tt.want {
			t.Errorf("%s: got %q; want %q", tt.upstream, got, tt.want)
		}
	}
}

// Every case is classified with markers of the gateway's account inserted into its body.
func TestMessageAndParamContainNoAccountMarker(t *testing.T) {
	markers := []string{"sk-live-Marker0123456789", "org-MarkerOrg12345", "marker.vendor-host.com", "123456789012", "UPSTREAM-Marker-Model"}
	for _, c := range slices.Concat(
		readCases(t, "testdata/cases.jsonl"), readCases(t, "testdata/heldout.jsonl"), readCases(t, "testdata/collected.jsonl"),
		readCases(t, "testdata/kinds.jsonl"), readCases(t, "testdata/unseen.jsonl"),
	) {
		a := c.answer()
		a.Cleaner = Cleaner{UpstreamModels: []string{"upstream-marker-model"}, ClientModel: "public-model"}
		a.Body = []byte(strings.NewReplacer(
			"the", "the "+strings.Join(markers, " "), "model", "UPSTREAM-Marker-Model",
		).Replace(string(a.Body)))
		v := Classify(a)
		for _, m := range markers {
			if strings.Contains(v.Message+v.Param, m) {
				t.Errorf("%s: the client reads %q in %q", c.ID, m, v.Message)
			}
		}
	}
}

// accountPattern matches the account data in the held-out cases.
var accountPattern = regexp.MustCompile(`(?i)https?://|\borg-|\bsk-|\bak-|\bxa\*|proj_|user_x|account acme|team 0000|req_\w|00-11|[\w-]+\.(?:com|ai|net|org)\b`)

// The client reads no account, host or model name of the held-out cases.
func TestHeldOutMessagesContainNoAccountData(t *testing.T) {
	models := []string{
		"gpt-4o-2024-11-20", "gpt-5-secret", "claude-sonnet-4-5-20250929", "claude-secret-4", "gemini-2.5-flash-002", "grok-4", "openai/gpt-4o",
		"deepseek-reasoner", "meta-x", "gemma:2b", "mistral-hidden",
	}
	name := regexp.MustCompile(`(?i)gpt-|claude-|gemini-|grok-|deepseek-r|meta-x|gemma|mistral-h`)
	for _, c := range readCases(t, "testdata/heldout.jsonl") {
		a := c.answer()
		a.Cleaner = Cleaner{UpstreamModels: models, ClientModel: "public-model"}
		v := Classify(a)
		for _, re := range []*regexp.Regexp{accountPattern, name} {
			if found := re.FindString(v.Message + " " + v.Param); found != "" {
				t.Errorf("%s: the client reads %q in %q", c.ID, found, v.Message)
			}
		}
		if v.Class == GatewayRefused && v.Message != "" || (v.Class == RateLimit || v.Class == Unavailable) && v.Message != "" {
			t.Errorf("%s: the client reads text of class %s: %q", c.ID, v.Class, v.Message)
		}
	}
}
