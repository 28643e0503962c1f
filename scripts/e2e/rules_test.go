package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rules are the rules of the public API with the tests that hold them, by the
// section of docs/api.md that states them. A new rule of the API begins there.
var rules = []struct {
	// section is a heading of docs/api.md.
	section, rule string
	// tests are separated by spaces; those of package chaos bear its name.
	tests string
	// untested says why no end-to-end test can hold the rule.
	untested string
}{
	{"Public API", "requests are forwarded to the provider of the model", "TestRequestIsForwardedToTheProviderOfTheModel", ""},

	{"Endpoints", "every endpoint of the table answers", "TestEveryEndpointAnswers", ""},
	{"Endpoints", "there are no others", "TestOtherPathsAndMethodsAreNotFound", ""},
	{"Endpoints", "base addresses of both families of clients", "TestBothBaseAddressesReachTheEndpoints", ""},

	{"Formats", "three text formats stream", "TestThreeTextFormatsStream", ""},
	{"Formats", "no translation between formats", "TestFormatsAreNotTranslated", ""},
	{"Formats", "the answer has the format of the request", "TestAnswerHasTheFormatOfTheRequest", ""},
	{"Formats", "the type of the model must fit the endpoint", "TestModelTypeMustMatchTheEndpoint", ""},
	{"Formats", "no conversation state at the provider", "TestNoStateIsKeptAtTheProvider", ""},

	{"Authentication", "every request but models needs a key", "TestEveryRequestButModelsNeedsAKey", ""},
	{"Authentication", "both headers on every endpoint", "TestBothKeyHeadersWorkOnEveryEndpoint", ""},
	{"Authentication", "a missing, unknown or revoked key is 401", "TestMissingUnknownOrRevokedKeyIsUnauthorized", ""},
	{"Authentication", "a key sent to models must be valid", "TestKeySentToModelsMustBeValid TestModelsAreListedWithAndWithoutKey", ""},
	{"Authentication", "SDKs read environment variables of their own", "", "it is about clients"},

	{"API keys", "issued and revoked in the cabinet", "TestKeysAreIssuedAndRevokedThroughTheAdminAPI", ""},
	{"API keys", "shown at any time", "TestKeyCanBeRevealedAtAnyTime", ""},
	{"API keys", "the oldest cannot be shown", "TestHashOnlyKeyWorksAndCannotBeRevealed", ""},
	{"API keys", "spend limit", "TestSpendLimitLeavesOtherKeysWorking TestKeyWithReachedLimitIsForbidden TestKeyIsRefusedWhenItsLimitIsReached", ""},
	{"API keys", "revocation is immediate and final", "TestRevocationIsImmediateAndIrreversible chaos.TestChaos_revoke_vs_load_race", ""},
	{"API keys", "revoked, whether or not the limit was reached", "TestKeyIsRevokedFromActiveAndFromLimitReached", ""},
	{"API keys", "never restored", "TestRevokedKeyIsNotRestored", ""},
	{"API keys", "not in repositories or at users", "", "it is about clients"},

	{"Models", "missing, disabled or not available is model_not_found", "TestMissingDisabledOrUngrantedModelIsNotFound", ""},
	{"Models", "with a key, also models opened to the account", "TestModelListHasModelsGrantedToTheAccount TestModelsAreListedWithAndWithoutKey", ""},
	{"Models", "an unchanged list is not sent again", "TestUnchangedModelListIsNotSentAgain", ""},

	{"Parameters", "model is required", "TestModelIsRequired", ""},
	{"Parameters", "gzip, zstd and no other encodings", "TestCompressedBodiesAreAccepted", ""},
	{"Parameters", "only listed parameters, and identifiers replaced", "TestOnlySupportedParametersReachTheProvider", ""},
	{"Parameters", "tools of the provider are left out or refused", "TestToolsOfTheProviderAreLeftOutOrRefused", ""},
	{"Parameters", "another provider where one does not take a parameter", "TestParameterUnsupportedByOneRouteUsesAnother", ""},
	{"Parameters", "links and data URLs", "TestLinksAndDataURLsReachTheProvider", ""},

	{"Headers", "x-request-id on every response", "TestEveryResponseHasARequestID", ""},
	{"Headers", "retry-after on 429", "TestEvery429HasRetryAfter", ""},
	{"Headers", "headers are not passed on", "TestHeadersAreNotPassedOn", ""},

	{"Streams", "an error in the middle of a stream is an event", "TestErrorInTheMiddleOfAStreamIsAnEvent", ""},

	{"Images", "billed per image", "TestImagesAreBilledPerImageVideosPerSecond", ""},

	{"Videos", "202 with an id", "TestVideoCreationAnswers202WithAnID", ""},
	{"Videos", "JSON or a form", "TestVideosTakeForms", ""},
	{"Videos", "content after completion", "TestVideoContentIsAvailableAfterCompletion", ""},
	{"Videos", "not ready or unknown is not_found", "TestVideoNotReadyOrUnknownIsNotFound", ""},
	{"Videos", "billed per second on completion", "TestVideoIsBilledPerSecondOnCompletion TestImagesAreBilledPerImageVideosPerSecond", ""},
	{"Videos", "no slot and no reservation", "TestVideosTakeNoSlotAndNoReservation", ""},

	{"Balance", "shared by all keys", "TestBalanceIsSharedByAllKeysOfTheAccount", ""},
	{"Balance", "available excludes reservations", "TestAvailableBalanceExcludesReservations", ""},
	{"Balance", "read with a key", "TestBalanceNeedsAKey", ""},

	{"Envelopes", "param only for a parameter", "TestParamIsSetOnlyForAParameter", ""},
	{"Envelopes", "request_id equals the header", "TestErrorHasTheRequestIDOfTheHeader", ""},
	{"Envelopes", "types of the messages envelope", "TestMessagesEnvelopeHasTheTypeOfTheStatus", ""},

	{"Error codes", "400 invalid_request", "TestMalformedBodyIsInvalid TestUnclassifiedRejectionKeepsTheProvidersStatus", ""},
	{"Error codes", "400 unsupported_parameter", "TestUnsupportedParameterIsRefused", ""},
	{"Error codes", "400 unsupported_value, invalid_value", "TestUnsupportedAndInvalidValuesAreRefused", ""},
	{"Error codes", "400 context_length_exceeded", "TestContextLengthExceeded", ""},
	{"Error codes", "400 content_policy_violation", "TestContentPolicyViolation", ""},
	{"Error codes", "400 invalid_image", "TestInvalidImage", ""},
	{"Error codes", "401 invalid_api_key", "TestInvalidKeyIsRefusedBeforeTheBodyIsChecked", ""},
	{"Error codes", "402 insufficient_quota", "TestInsufficientQuota", ""},
	{"Error codes", "403 spend_limit_exceeded", "TestSpendLimitExceeded", ""},
	{"Error codes", "404 model_not_found, not_found", "TestUnknownModelOrPathIsNotFound", ""},
	{"Error codes", "413 invalid_request", "TestBodyTooLarge", ""},
	{"Error codes", "422 generation_failed", "TestGenerationFailed", ""},
	{"Error codes", "429 rate_limit_exceeded", "TestRateLimitExceeded", ""},
	{"Error codes", "500 without code", "", "an internal error cannot be provoked from outside; package httpapi tests it"},
	{"Error codes", "502 upstream_unavailable", "TestUpstreamUnavailable", ""},
	{
		"Error codes", "503 service_unavailable",
		"chaos.TestControlPlaneDoesNotAnswer TestServiceUnderMaintenanceIsUnavailable TestModelUnderMaintenanceIsUnavailable", "",
	},
	{"Error codes", "503 without code", "TestModelWithoutAvailableRouteIsUnavailable", ""},

	{"Retries", "which errors a retry cures, and when", "TestRetryableErrorsAreCuredByARetry TestEvery429HasRetryAfter", ""},
	{"Retries", "repeat the whole request after an error event", "", "it is about clients"},
	{"Retries", "the request_id for support", "TestErrorHasTheRequestIDOfTheHeader", ""},

	{"Limits", "concurrent requests of an account", "TestConcurrencyLimitIsPerAccountAcrossKeys TestExactlyAsManyAsFitAreServed", ""},
	{"Limits", "rate limit of the provider", "TestRetryAfterOfTheProviderIsPassedOn", ""},
	{"Limits", "concurrent requests of a key", "TestSlotsOfAKeyAreItsOwn", ""},
	{"Limits", "spend limit and balance", "TestExactlyAsManyAsFitAreServed TestReservedRemainderBecomesAvailableAgain", ""},
	{"Limits", "bodies", "TestBodySizeLimits TestDecompressedBodyHasTheSameLimit", ""},
	{"Limits", "bodies in flight", "TestBodiesBeyondTheBudgetAreRefusedForNow chaos.TestChaos_large_bodies_at_a_small_memory_limit", ""},
	{"Limits", "large bodies in upload", "TestLargeUploadsBeyondTheSlotsAreRefusedForNow", ""},
	{"Limits", "turns among accounts", "TestBodiesBeyondTheSlotsAreRefusedWhileProcessorsAreBusy", ""},
	{"Limits", "downloads of videos", "TestDownloadsBeyondTheLimitAreRefusedForNow", ""},
	{"Limits", "slow clients and connections", "", "their limits take minutes; dataplane/internal/httpapi tests them with a fake clock"},
	{"Limits", "images per request", "TestNumberOfImagesIsClamped", ""},
	{"Service tiers", "the charge is that of the tier that the answer names", "TestAnswersAreChargedByTheirServiceTier", ""},
	{"Service tiers", "long inputs have prices in each tier", "TestLongInputsAreChargedByTheirServiceTier", ""},
	{"Service tiers", "the reservation covers the dearest tier", "TestReservationCoversTheDearestServiceTier", ""},
	{"Service tiers", "a tier without prices is refused", "TestServiceTierWithoutPricesIsRefused", ""},
	{"Limits", "none per minute", "TestThereIsNoLimitOfRequestsPerMinute", ""},
	{"Limits", "a slot is free when its request has ended", "TestSlotIsFreeWhenTheRequestHasEnded", ""},
	{"Limits", "videos are exempt", "TestVideosTakeNoSlotAndNoReservation", ""},

	{"Order of checks", "the key before the body", "TestInvalidKeyIsRefusedBeforeTheBodyIsChecked", ""},

	{"Billing", "expected cost is reserved", "TestRunningRequestsAreReservedFor", ""},
	{"Billing", "a stream that fails midway costs what was delivered", "TestErrorInTheMiddleOfAStreamIsAnEvent", ""},
	{"Billing", "a client that disconnects", "TestClientLeavesAnAnswerInOnePiece TestClientLeavesAStream", ""},
	{"Billing", "charged once", "TestChatIsAnsweredAndBilledThroughEveryProxy", ""},
	{"Cost of an answer", "the amount is that of the receipt", "TestCostOfAnAnswerIsThatOfItsReceipt", ""},

	{"Versioning", "every path begins with /v1", "TestEveryPathBeginsWithV1", ""},
}

// withoutRules are sections that only introduce or collect others.
var withoutRules = []string{"Errors"}

// Every rule has tests or a reason why not, every test of the API has a rule, and
// every section of the document has rules.
func TestEveryRuleHasATest(t *testing.T) {
	t.Parallel()
	sections := headings(t, filepath.Join("..", "..", "docs", "api.md"))
	tests := append(testsIn(t, "*_test.go", ""), testsIn(t, filepath.Join("chaos", "*_test.go"), "chaos.")...)
	named := map[string]bool{}
	cited := slices.Clone(withoutRules)
	for _, r := range rules {
		if (r.tests == "") == (r.untested == "") {
			t.Errorf("%s, %s: want tests, or a reason why there are none", r.section, r.rule)
		}
		if !slices.Contains(sections, r.section) {
			t.Errorf("%s: docs/api.md has no section %q", r.rule, r.section)
		}
		cited = append(cited, r.section)
		for name := range strings.FieldsSeq(r.tests) {
			named[name] = true
			if !slices.Contains(tests, name) {
				t.Errorf("%s, %s: there is no test %s", r.section, r.rule, name)
			}
		}
	}
	for _, section := range sections {
		if !slices.Contains(cited, section) {
			t.Errorf("no rule cites the section %q of docs/api.md", section)
		}
	}
	for _, name := range testsIn(t, "api_*_test.go", "") {
		if !named[name] {
			t.Errorf("%s has no rule", name)
		}
	}
}

// headings returns the headings of a Markdown file.
func headings(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			all = append(all, strings.TrimSpace(strings.TrimLeft(line, "#")))
		}
	}
	return all
}

// testsIn lists the test functions of files.
func testsIn(t *testing.T, pattern, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
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
