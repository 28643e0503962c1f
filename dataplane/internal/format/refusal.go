package format

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"modelgateway/shared/apierr"
)

// maxParam bounds the length of a name that is answered: it is the client's own.
const maxParam = 128

// Unsupported is the refusal of a parameter that is not offered.
func Unsupported(param string) *apierr.Error {
	param = clip(param)
	return &apierr.Error{
		Status: http.StatusBadRequest, Code: apierr.UnsupportedParameter, Param: param,
		Message: "The parameter " + strconv.Quote(param) + " is not supported.",
	}
}

// UnsupportedFor is Unsupported with a sentence that says what is offered instead.
func UnsupportedFor(param, why string) *apierr.Error {
	e := Unsupported(param)
	e.Message += " " + why
	return e
}

// Invalid is the refusal of a value; want says what would be right, as in "an
// integer".
func Invalid(param, want string) *apierr.Error {
	param = clip(param)
	return &apierr.Error{
		Status: http.StatusBadRequest, Code: apierr.InvalidValue, Param: param,
		Message: "The value of " + strconv.Quote(param) + " must be " + want + ".",
	}
}

// Missing is the refusal of a body that lacks a required parameter.
func Missing(param string) *apierr.Error {
	return &apierr.Error{
		Status: http.StatusBadRequest, Code: apierr.InvalidRequest, Param: param,
		Message: "The parameter " + strconv.Quote(param) + " is required.",
	}
}

// clip shortens a name between runes.
func clip(name string) string {
	if len(name) <= maxParam {
		return name
	}
	n := maxParam
	for n > 0 && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n]
}

// At returns the path of the i-th element of the parameter param, such as tools[3].
func ElementPath(param string, i int) string { return param + "[" + strconv.Itoa(i) + "]" }
