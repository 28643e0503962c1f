package view

import "strings"

// A Piece is a part of a text. Code is set for names and commands.
type Piece struct {
	Text string
	Code bool
}

// Prose returns the pieces of a text in which code stands between backticks.
func Prose(text string) []Piece {
	var pieces []Piece
	for i, part := range strings.Split(text, "`") {
		if part != "" {
			pieces = append(pieces, Piece{part, i%2 == 1})
		}
	}
	return pieces
}

// browsers are the marks of browsers in the names that they send, the most particular first.
var browsers = []struct{ mark, name string }{
	{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"},
}

var systems = []struct{ mark, name string }{
	{"Windows", "Windows"}, {"Android", "Android"}, {"iPhone", "iOS"}, {"iPad", "iOS"}, {"Mac OS X", "macOS"}, {"Linux", "Linux"},
}

// Browser returns the browser and the system of a User-Agent, such as "Firefox on Linux". It returns any other text as it is.
func Browser(agent string) string {
	for _, browser := range browsers {
		if !strings.Contains(agent, browser.mark) {
			continue
		}
		for _, system := range systems {
			if strings.Contains(agent, system.mark) {
				return browser.name + " on " + system.name
			}
		}
		return browser.name
	}
	return agent
}

// Method returns how somebody signed in.
func Method(method string) string {
	switch method {
	case "bootstrap":
		return "bootstrap token"
	case "token":
		return "admin token"
	case "oidc":
		return "identity provider"
	}
	return method
}

// Book returns what the entries of a ledger account are.
func Book(name string) string {
	switch name {
	case "customer":
		return "the balances of all accounts"
	case "funding":
		return "the other side of payments"
	case "promotion":
		return "the other side of promotions"
	case "adjustment":
		return "the other side of corrections and refunded requests"
	case "breakage":
		return "what has expired of payments and corrections"
	case "revenue":
		return "charges for usage"
	}
	return ""
}
