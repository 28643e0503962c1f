package format

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"modelgateway/shared/apierr"
)

// maxParamName bounds the length of a client's own name in an error, in bytes.
const maxParamName = 128

// Unsupported returns the refusal of a parameter that is not offered.
func Unsupported(param string) *apierr.Error {
	param = clipParam(param)
	return &apierr.Error{
		Status: http.StatusBadRequest, Code: apierr.UnsupportedParameter, Param: param, ParamIsEmpty: param == "",
		Message: "The parameter " + strconv.Quote(param) + " is not supported.",
	}
}

// UnsupportedFor is Unsupported with a further sentence, why, such as the alternative that is offered.
func UnsupportedFor(param, why string) *apierr.Error {
	e := Unsupported(param)
	e.Message += " " + why
	return e
}

// Invalid returns the refusal of a value. want describes a valid one, as in "an integer".
func Invalid(param, want string) *apierr.Error {
	param = clipParam(param)
	return &apierr.Error{
		Status: http.StatusBadRequest, Code: apierr.InvalidValue, Param: param,
		Message: "The value of " + strconv.Quote(param) + " must be " + want + ".",
	}
}

// Missing returns the refusal of a body without a required parameter.
func Missing(param string) *apierr.Error {
	return &apierr.Error{
		Status: http.StatusBadRequest, Code: apierr.InvalidRequest, Param: param,
		Message: "The parameter " + strconv.Quote(param) + " is required.",
	}
}

// clipParam shortens a name between two runes.
func clipParam(name string) string {
	if len(name) <= maxParamName {
		return name
	}
	n := maxParamName
	for n > 0 && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n]
}

// ElementPath returns the path of the i-th element of the parameter param, such as tools[3].
func ElementPath(param string, i int) string { return param + "[" + strconv.Itoa(i) + "]" }
