package kit

import (
	"net/http"
	"slices"
	"strings"
)

// Kept is a form that was sent after the session had ended. The template "signed_out" leads back to it.
type Kept struct {
	// Action is the address that the form was sent to.
	Action string
	Values []KeptValue
	// Dropped is set if secrets or files were left out.
	Dropped bool
}

// KeptValue is a value of a form.
type KeptValue struct{ Name, Value string }

// maxKept bounds the form that anybody can send, in bytes.
const maxKept = 1 << 20

// Keep reads a form that was sent without a session. It returns nil if the request has none, or a larger one than anybody may
// send.
func Keep(w http.ResponseWriter, r *http.Request) *Kept {
	if r.Method != http.MethodPost {
		return nil
	}

	r.Body = http.MaxBytesReader(w, r.Body, maxKept)
	multipart := strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data")
	err := r.ParseForm()
	if multipart {
		err = r.ParseMultipartForm(maxKept) //nolint:gosec // G120: the body is bounded above
	}
	if err != nil || r.PostFormValue(keyName) == "" {
		return nil
	}

	kept := &Kept{Action: r.URL.RequestURI()}
	for name, values := range r.PostForm {
		if slices.Contains(r.PostForm[secretName], name) {
			kept.Dropped = true
			continue
		}
		if name == stepName || name == confirmName || name == secretName {
			continue
		}
		for _, value := range values {
			kept.Values = append(kept.Values, KeptValue{name, value})
		}
	}

	if multipart {
		kept.Dropped = kept.Dropped || len(r.MultipartForm.File) > 0
		_ = r.MultipartForm.RemoveAll()
	}

	slices.SortStableFunc(kept.Values, func(a, b KeptValue) int { return strings.Compare(a.Name, b.Name) })
	return kept
}
