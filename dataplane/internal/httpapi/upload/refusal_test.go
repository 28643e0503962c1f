package upload

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/shared/apierr"
)

func TestRefusalSaysWhatIsWrongWithABody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err    error
		status int
		words  string
	}{
		{buffer.ErrTooLarge, http.StatusRequestEntityTooLarge, "larger than the limit of 64 MiB"},
		{&EncodingError{"br"}, http.StatusBadRequest, "'br' are not accepted"},
		{&EncodingError{strings.Repeat("é", 100)}, http.StatusBadRequest, strings.Repeat("é", 64) + "…' are not"},
		{ErrCompressed, http.StatusBadRequest, "not valid in its content encoding"},
		{errors.New("connection reset"), http.StatusBadRequest, "could not be read completely"},
	} {
		var b Body
		e, ok := errors.AsType[*apierr.Error](b.refusal(tt.err, 64<<20))
		if !ok || e.Status != tt.status || !strings.Contains(e.Message, tt.words) || !errors.Is(e, tt.err) {
			t.Errorf("%v: got %+v", tt.err, e)
		}
	}
	for _, err := range []error{bytebudget.ErrFull, bytebudget.ErrShare, bytebudget.ErrTooLarge} {
		var b Body
		if got := b.refusal(err, 1); !errors.Is(got, err) || errors.As(got, new(*apierr.Error)) != errors.As(err, new(*apierr.Error)) {
			t.Errorf("%v of the budget became %v", err, got)
		}
	}
}

func TestEncodingsAreReadAsHTTPWritesThem(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]string{
		"":           nil,
		"gzip":       {" GZip "},
		"gzip, zstd": {"gzip", "zstd"},
	} {
		if got := encodingOf(http.Header{"Content-Encoding": values}); got != want {
			t.Errorf("%q: got %q; want %q", values, got, want)
		}
	}
	if got := encodingOf(http.Header{"Content-Encoding": {"identity"}}); got != "" {
		t.Errorf("identity is %q; want none", got)
	}
	if e := NotJSON(json.Unmarshal([]byte("["), new(any))); e.Status != http.StatusBadRequest || e.Message != "The request body is not a valid JSON object." {
		t.Errorf("got %+v", e)
	}
}
