package format

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
)

// maxParamName bounds the length of a client's own name in an error, in bytes.
const maxParamName = 128

// Unsupported returns the refusal of a parameter that is not offered.
func Unsupported(param string) *apierr.Error {
	param = Clip(param, maxParamName)
	return &apierr.Error{
		Status:       http.StatusBadRequest,
		Code:         apierr.UnsupportedParameter,
		Param:        param,
		ParamIsEmpty: param == "",
		Message:      "The parameter " + strconv.Quote(param) + " is not supported.",
	}
}

// UnsupportedValue returns the refusal of a value that is not offered, although the parameter is: with the value in the
// message, if it is a short word. A switch such as true is no such value: it asks for the parameter. So does no value.
func UnsupportedValue(param string, raw []byte) *apierr.Error {
	e := Unsupported(param)
	text, ok := jsonspan.Text(nil, raw)
	if !ok {
		return e
	}
	value := "This value"
	if isWord(text) {
		value = "The value " + strconv.Quote(string(text))
	}
	e.Code, e.Message = apierr.UnsupportedValue, value+" of the parameter "+strconv.Quote(e.Param)+" is not supported with this model."
	return e
}

// unsupportedTool returns the refusal of a tool that the model does not offer. param is the path of its type.
func unsupportedTool(param, kind string) *apierr.Error {
	e := Unsupported(param)
	if isWord([]byte(kind)) {
		e.Message = "The tool " + strconv.Quote(kind) + " (" + e.Param + ") is not supported with this model."
	}
	return e
}

// isWord reports whether a value that a client sent may be repeated in a message: it is short and looks like the name of
// something.
func isWord(text []byte) bool {
	for _, c := range text {
		if c != '_' && c != '-' && c != '.' && c != ':' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return len(text) > 0 && len(text) <= 64
}

// UnsupportedFor is Unsupported with a further sentence, why, such as the alternative that is offered.
func UnsupportedFor(param, why string) *apierr.Error {
	e := Unsupported(param)
	e.Message += " " + why
	return e
}

// Invalid returns the refusal of a value. want describes a valid one, as in "an integer".
func Invalid(param, want string) *apierr.Error {
	param = Clip(param, maxParamName)
	return &apierr.Error{
		Status:  http.StatusBadRequest,
		Code:    apierr.InvalidValue,
		Param:   param,
		Message: "The value of " + strconv.Quote(param) + " must be " + want + ".",
	}
}

// Missing returns the refusal of a body without a required parameter.
func Missing(param string) *apierr.Error {
	return &apierr.Error{
		Status:  http.StatusBadRequest,
		Code:    apierr.InvalidRequest,
		Param:   param,
		Message: "The parameter " + strconv.Quote(param) + " is required.",
	}
}

// Clip shortens a name that a client sent, and an error repeats, to at most n bytes, between two runes.
func Clip(name string, n int) string {
	if len(name) <= n {
		return name
	}
	for n > 0 && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n]
}

// ElementPath returns the path of the i-th element of the parameter param, such as tools[3].
func ElementPath(param string, i int) string { return param + "[" + strconv.Itoa(i) + "]" }
