package providercheck

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
)

// maxDetail bounds what is reported of an answer, in bytes.
const maxDetail = 300

// reason says why no answer came, without any text of the provider.
func reason(call *provider.Call, err error) string {
	if failure, ok := errors.AsType[*provider.Failure](err); ok {
		return failure.Error()
	}
	return provider.CallFailure(call, err).Error()
}

// codeForm is what the code of an error looks like.
var codeForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// detail returns the code and the message of an answer that is an error of the formats, otherwise the type of its content.
func detail(contentType string, text []byte, credential *catalog.Credential) string {
	code, message, isError := errorOf(text)
	if !isError {
		media, _, err := mime.ParseMediaType(contentType)
		if err != nil {
			return ""
		}
		return cut(media)
	}

	cleaner := classify.Cleaner{Hidden: forms(credential.Hidden())}
	if credential.Kind != "" { // the answer may repeat a token that was made of the credential, which is not known here
		message = ""
	}

	var parts []string
	if codeForm.MatchString(code) && cleaner.Clean(code) == code {
		parts = append(parts, code)
	}
	if message = cleaner.Clean(message); message != "" {
		parts = append(parts, message)
	}
	return cut(strings.Join(parts, ": "))
}

// errorOf reads the error object that the formats have in common: with a message, and a code or a type.
func errorOf(text []byte) (code, message string, ok bool) {
	var answer struct {
		Error *struct {
			Message *string `json:"message"`
			Code    any     `json:"code"`
			Type    string  `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &answer) != nil || answer.Error == nil || answer.Error.Message == nil {
		return "", "", false
	}
	code, _ = answer.Error.Code.(string)
	if code == "" {
		code = answer.Error.Type
	}
	return code, *answer.Error.Message, true
}

// forms returns texts in the forms in which an error may repeat them: as they are, and escaped or encoded.
func forms(hidden []string) (all []string) {
	for _, text := range hidden {
		quoted, err := json.Marshal(text)
		if err != nil { // texts always marshal
			panic(err)
		}
		all = append(
			all,
			text,
			string(quoted[1:len(quoted)-1]),
			url.QueryEscape(text),
			url.PathEscape(text),
			base64.RawStdEncoding.EncodeToString([]byte(text)),
			base64.RawURLEncoding.EncodeToString([]byte(text)),
			hex.EncodeToString([]byte(text)),
		)
	}
	return all
}

// cut returns the begin of a text.
func cut(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	text = text[:maxDetail]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
