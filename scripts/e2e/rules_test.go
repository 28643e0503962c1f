package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rules are all rules of the public API, by section, with the tests that hold
// them. A rule without one says why. A new rule of the API begins here.
var rules = []struct {
	rule string
	// tests are separated by spaces; those of package chaos bear its name.
	tests string
	// untested says why no test from outside can hold the rule.
	untested string
}{
	{"service 1: requests with a key are forwarded to the provider of the model", "TestAPI_Service_Rule1_ForwardsToTheProviderOfTheModel", ""},
	{"service 2: three text formats, all with streaming", "TestAPI_Service_Rule2_ThreeFormatsStream", ""},
	{"service 3: images per image, videos per second on completion", "TestAPI_Service_Rule3_ImagesPerPictureVideosPerSecond", ""},
	{"service 4: no translation between formats", "TestAPI_Service_Rule4_NoTranslation", ""},
	{"service 5: the model's type must match the endpoint", "TestAPI_Service_Rule5_TypeMustMatchTheEndpoint", ""},
	{"service 6: only supported parameters; identifiers replaced", "TestAPI_Service_Rule6_ParametersAndIdentifiers", ""},
	{"service 7: client headers are not passed on", "TestAPI_Service_Rule7_HeadersStayHere", ""},
	{"service 8: no conversation state at the provider", "TestAPI_Service_Rule8_NoStateAtTheProvider", ""},
	{"service 9: expected cost is reserved; videos hold no reserve", "TestAPI_Service_Rule9_RunningRequestsAreReservedFor", ""},
	{"service 10: x-request-id on every response", "TestAPI_Service_Rule10_EveryResponseHasAnID", ""},

	{"key: issued in the cabinet", "TestAPI_Auth_Rule6_KeysAreIssuedAndRevokedInTheCabinet", ""},
	{"key: show key at any time", "TestAPI_Key_Storage_ShowKeyRevealsItAtAnyTime", ""},
	{"key: the oldest have no show key", "TestAPI_Key_OldestKeys_WorkAndHaveNoShowKey", ""},
	{"key: spend limit", "TestAPI_Key_SpendLimit_OtherKeysKeepWorking", ""},
	{"key: revocation is immediate and irreversible", "TestAPI_Key_Revocation_IsImmediateAndIrreversible chaos.TestChaos_revoke_vs_load_race", ""},
	{"model: not there, disabled or not available is model_not_found", "TestAPI_Model_NotThereDisabledOrNotOpen_IsNotFound", ""},
	{"model: the catalog lists models opened to the account", "TestAPI_Model_CatalogListsModelsOpenedToTheAccount", ""},
	{"balance: shared by all keys", "TestAPI_Balance_IsSharedByAllKeysOfTheAccount", ""},
	{"balance: available is free of the reserve", "TestAPI_Balance_AvailableIsWhatIsFreeOfTheReserve", ""},
	{"balance: read with a key", "TestAPI_Balance_NeedsAKey", ""},
	{"parameter: model is required", "TestAPI_Parameter_Model_IsRequired", ""},
	{"parameter: n is clamped to 1..10", "TestAPI_Parameter_N_IsClamped", ""},
	{"header: x-request-id", "TestAPI_Service_Rule10_EveryResponseHasAnID", ""},
	{"header: Retry-After on 429", "TestAPI_Header_RetryAfter_OnEvery429", ""},

	{"video 1: 202 with an id", "TestAPI_VideoState_Rule1_CreationAnswers202WithAnID", ""},
	{"video 2: content after completion", "TestAPI_VideoState_Rule2_ContentAfterCompletion", ""},
	{"video 3: not ready or unknown is not_found", "TestAPI_VideoState_Rule3_NotReadyOrUnknownIsNotFound", ""},
	{"video 4: billed per second on completion", "TestAPI_VideoState_Rule4_BilledPerSecondOnCompletion", ""},
	{"key state: limit reached", "TestAPI_KeyState_Rule1_LimitReached", ""},
	{"key state: revoked, from active and from limit reached", "TestAPI_KeyState_Rule2And3_RevokedFromActiveAndFromLimitReached", ""},
	{"key state: never restored", "TestAPI_KeyState_Rule4_ARevokedKeyIsNotRestored", ""},

	{"endpoints: base addresses of both kinds of clients", "TestAPI_Endpoints_Base", ""},
	{"endpoints: the nine of the table", "TestAPI_Endpoints_EachAnswers TestAPI_Endpoints_VideosTakeForms", ""},
	{"endpoints 1: no others", "TestAPI_Endpoints_Rule1_NoOtherEndpoints", ""},
	{"endpoints 2: the same format in and out", "TestAPI_Endpoints_Rule2_SameFormatInAndOut", ""},
	{"endpoints 3: models with and without a key", "TestAPI_Endpoints_Rule3_ModelsWithAndWithoutKey", ""},
	{"endpoints 4: videos take no slot and no reserve", "TestAPI_Endpoints_Rule4_VideosTakeNoSlotAndNoReserve", ""},
	{"endpoints 5: body sizes", "TestAPI_Endpoints_Rule5_BodySizeLimits", ""},
	{"endpoints 6: links instead of data URLs", "TestAPI_Endpoints_Rule6_LinksAndDataURLsPass", ""},

	{"authentication 1: every request but models", "TestAPI_Auth_Rule1_EveryRequestNeedsAKeyButModels", ""},
	{"authentication 2: both headers on every endpoint", "TestAPI_Auth_Rule2_BothHeadersOnEveryEndpoint", ""},
	{"authentication 3: missing, unknown or revoked", "TestAPI_Auth_Rule3_MissingUnknownOrRevoked", ""},
	{"authentication 4: a key on models must be valid", "TestAPI_Auth_Rule4_AKeyOnModelsMustBeValid", ""},
	{"authentication 5: a spent key is 403", "TestAPI_Auth_Rule5_ASpentKeyIsForbidden", ""},
	{"authentication 6: issued and revoked in the cabinet", "TestAPI_Auth_Rule6_KeysAreIssuedAndRevokedInTheCabinet", ""},
	{"authentication 7: SDKs have variables of their own", "", "it is about clients"},

	{"events: an error in the middle of a stream", "TestAPI_Events_ErrorInTheMiddleOfAStream", ""},

	{"envelope 1: param only for a parameter", "TestAPI_Errors_Envelope_Rule1_ParamOnlyForAParameter", ""},
	{"envelope 2: request_id equals the header", "TestAPI_Errors_Envelope_Rule2_RequestIDEqualsTheHeader", ""},
	{"envelope 3: types of the messages envelope", "TestAPI_Errors_Envelope_Rule3_MessagesTypes", ""},
	{"400 invalid_request", "TestAPI_Errors_400_invalid_request TestAPI_Errors_400_invalid_request_KeepsTheProvidersStatus", ""},
	{"400 unsupported_parameter", "TestAPI_Errors_400_unsupported_parameter TestAPI_Errors_400_unsupported_parameter_OnARoute", ""},
	{"400 unsupported_value, invalid_value", "TestAPI_Errors_400_unsupported_value_and_invalid_value", ""},
	{"400 context_length_exceeded", "TestAPI_Errors_400_context_length_exceeded", ""},
	{"400 content_policy_violation", "TestAPI_Errors_400_content_policy_violation", ""},
	{"400 invalid_image", "TestAPI_Errors_400_invalid_image", ""},
	{"401 invalid_api_key", "TestAPI_Errors_401_invalid_api_key", ""},
	{"402 insufficient_quota", "TestAPI_Errors_402_insufficient_quota", ""},
	{"403 spend_limit_exceeded", "TestAPI_Errors_403_spend_limit_exceeded", ""},
	{"404 model_not_found, not_found", "TestAPI_Errors_404_model_not_found_and_not_found", ""},
	{"413 invalid_request", "TestAPI_Errors_413_invalid_request", ""},
	{"422 generation_failed", "TestAPI_Errors_422_generation_failed", ""},
	{"429 rate_limit_exceeded", "TestAPI_Errors_429_rate_limit_exceeded", ""},
	{"500 without code", "", "an internal error cannot be had from outside; package httpapi tests it"},
	{"502 upstream_unavailable", "TestAPI_Errors_502_upstream_unavailable", ""},
	{
		"503 service_unavailable",
		"chaos.TestControlPlaneIsSilent TestAPI_Errors_503_service_unavailable_UnderMaintenance TestAPI_Errors_503_service_unavailable_ModelUnderMaintenance", "",
	},
	{"503 without code", "TestAPI_Errors_503_WithoutCode_NoAvailableRoute", ""},
	{"retries 1, 2: what a retry cures, and when", "TestAPI_Errors_Retries_Rule1And2_WhatARetryCures TestAPI_Header_RetryAfter_OnEvery429", ""},
	{"retries 3: an error event is a reason to retry", "", "it is about clients"},
	{"retries 4: the request_id for support", "TestAPI_Errors_Envelope_Rule2_RequestIDEqualsTheHeader", ""},

	{"limits: concurrent requests of an account", "TestAPI_Limits_ConcurrentRequests_PerAccountAcrossKeys TestExactlyAsManyAsFitAreServed", ""},
	{"limits: the provider's rate limit", "TestAPI_Limits_ProviderRateLimit", ""},
	{"limits: key spend limit and balance", "TestExactlyAsManyAsFitAreServed", ""},
	{"limits: bodies", "TestAPI_Endpoints_Rule5_BodySizeLimits", ""},
	{"limits: images per request", "TestAPI_Parameter_N_IsClamped", ""},
	{"limits 1: none per minute", "TestAPI_Limits_Rule1_NoRequestsPerMinute", ""},
	{"limits 2: a slot is free when its request has finished", "TestAPI_Limits_Rule2_SlotIsFreeWhenTheRequestHasFinished", ""},
	{"limits 3: videos are exempt", "TestAPI_Endpoints_Rule4_VideosTakeNoSlotAndNoReserve", ""},
	{"limits 4: a held remainder comes back", "TestAPI_Limits_Rule4_HeldRemainderComesBack", ""},

	{"versioning: every path begins with /v1", "TestAPI_Versioning_EveryPathBeginsWithV1", ""},
}

// Every rule has its tests or a reason, and every test of the API has its rule.
func TestEveryRuleHasATest(t *testing.T) {
	t.Parallel()
	tests := append(testsIn(t, ".", ""), testsIn(t, "chaos", "chaos.")...)
	named := map[string]bool{}
	for _, r := range rules {
		if (r.tests == "") == (r.untested == "") {
			t.Errorf("%s: want tests, or a reason why there are none", r.rule)
		}
		for name := range strings.FieldsSeq(r.tests) {
			named[name] = true
			if !slices.Contains(tests, name) {
				t.Errorf("%s: there is no test %s", r.rule, name)
			}
		}
	}
	for _, name := range tests {
		if strings.HasPrefix(name, "TestAPI_") && !named[name] {
			t.Errorf("%s has no rule", name)
		}
	}
}

// testsIn lists the test functions of a directory.
func testsIn(t *testing.T, dir, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, prefix+f.Name.Name)
			}
		}
	}
	return names
}
