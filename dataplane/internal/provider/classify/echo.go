package classify

import (
	"net/http"
	"strings"
)

// isAboutRequest reports whether a status says that the request is at fault. Its text may then contain words of the
// client: values, names of nested members, roles, names of tools.
func isAboutRequest(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// isJudgement reports whether a class says something about the gateway's account, the provider or the content instead of
// a part of the request. Words of the client must not lead to it.
func (c Class) isJudgement() bool {
	switch c {
	case GatewayRefused, ContentPolicy, RateLimit, NoImage, Unavailable:
		return true
	case ContextLength, InvalidImage, UnsupportedParameter, InvalidValue, OtherClient:
	}
	return false
}

// withoutEchoes returns a text without the places in which providers repeat parts of a request: quoted texts, the path of
// a member at the beginning, and a list of names at the end. A quoted text reaches to the last closing quotation mark of
// the line, because the quoted words may contain one; but a name of the gateway's own, which only the gateway chooses, is
// taken out by itself.
func withoutEchoes(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = complaint.get().ReplaceAllString(line, "$1")
		if memberPath.get().MatchString(line) {
			at := strings.LastIndexByte(line, ':')
			if at < 0 {
				at = len(line) - 1
			}
			line = line[at+1:]
		}
		line = ownNames.get().ReplaceAllString(line, "$1 ")
		for _, quoted := range quotedTexts {
			line = quoted.get().ReplaceAllString(line, "$1 $2")
		}
		lines[i] = namesAtEnd.get().ReplaceAllString(line, "$1")
	}

	return strings.Join(lines, "\n")
}

// ownNames matches a quoted name after the word for a thing that the gateway names in a request, not its client.
var ownNames = lazily(
	"(?i)\\b((?:model|deployment|endpoint|project|folder|account|organi[sz]ation|workspace|subscription|region|engine)(?: id| name)?)\\s+" +
		"(?:'[^'\"`\\n]{1,120}'|\"[^'\"`\\n]{1,120}\"|`[^'\"`\\n]{1,120}`)",
)

// memberPath matches a line that begins with the path of a member, such as "messages.0.content: " and "tools[0].name: ".
// The text after the last colon is not a part of it.
var memberPath = lazily(`^\W*[A-Za-z_]+(?:\.\d+|\[\d+\])`)

// complaint matches a line with one of the fixed sentences of Pydantic, which follow the name of the member that is refused.
// A client can name a member as it likes.
var complaint = lazily(`(?i)^.*?: (extra (?:inputs|fields) (?:are )?not permitted|field required|input should |input tag )`)

// quotedTexts match quoted texts. An apostrophe within a word begins and ends none.
var quotedTexts = []*expression{
	lazily(`()".*"()`),
	lazily("()`.*`()"),
	lazily(`()“.*”()`),
	lazily(`()«.*»()`),
	lazily(`(^|\W)'.*'(\W|$)`),
}

// namesAtEnd matches names that are listed without quotation marks, as in "unrecognized request argument supplied: x".
var namesAtEnd = lazily(`(?i)(\b(?:arguments?|parameters?|fields?|keys?|names?|propert(?:y|ies))(?: supplied| provided| found)?:).*`)
