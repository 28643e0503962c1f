package auth

import (
	"net/http"
	"strings"
)

// KeyText returns the API key from either of its headers. present reports whether a client sent either header, even an
// empty one.
func KeyText(h http.Header) (text string, present bool) {
	authorization, bearer := h["Authorization"], ""
	if len(authorization) > 0 {
		scheme, rest, _ := strings.Cut(authorization[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			bearer = strings.TrimSpace(rest)
		}
	}

	plain, hasPlain := h["X-Api-Key"]
	switch {
	case bearer != "":
		return bearer, true
	case hasPlain:
		return strings.TrimSpace(plain[0]), true
	default:
		return "", len(authorization) > 0
	}
}
