package kit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// Notice tells once, on the page after an action, how the action ended.
type Notice struct {
	// Kind is "good", "warn" or "bad".
	Kind string `json:"kind"`
	Text string `json:"text"`
	// Total is the number of proxies that had to apply the change, Applied of those that have; Total is 0 if the change
	// does not concern proxies.
	Applied int `json:"applied"`
	Total   int `json:"total"`
	// Pending are the names of the proxies that may not have applied it yet.
	Pending []string `json:"pending"`
}

// Done is the notice of an action that concerns no proxy.
func Done(text string) *Notice { return &Notice{Kind: "good", Text: text} }

// Wait asks an operation to wait until the proxies have applied a change.
func Wait() *adminclient.Wait { return new(adminclient.WaitForApplied) }

// Applied is the notice of a change that was made with Wait, from the headers of the response.
func Applied(text string, header http.Header) *Notice {
	n := Done(text)
	n.Applied, _ = strconv.Atoi(header.Get("Applied-By"))
	for name := range strings.SplitSeq(header.Get("Applied-Pending"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			n.Pending = append(n.Pending, name)
		}
	}
	n.Total = n.Applied + len(n.Pending)
	switch header.Get("Applied") {
	case "true":
		if n.Total == 0 {
			n.Text += " No proxy is running that has to apply it."
		}
	case "false":
		n.Kind = "warn"
		if n.Total == 0 {
			n.Text += " Whether the proxies have applied it is not known; they do within seconds."
		}
	}
	return n
}

// Progress tells how many proxies have applied a change.
func (n *Notice) Progress() string {
	switch {
	case n.Total == 0:
		return ""
	case len(n.Pending) == 0 && n.Total == 1:
		return "Applied by the one proxy."
	case len(n.Pending) == 0:
		return fmt.Sprintf("Applied by all %d proxies.", n.Total)
	default:
		return fmt.Sprintf("Applied by %d of %d proxies; %s will follow.", n.Applied, n.Total, strings.Join(n.Pending, ", "))
	}
}

// maxNotice bounds a notice, in bytes: browsers refuse larger cookies.
const maxNotice = 3000

// Encode returns the notice as the value of a cookie.
func (n *Notice) Encode() string {
	text, err := json.Marshal(n)
	if len(text) > maxNotice {
		text, err = json.Marshal(Notice{Kind: n.Kind, Text: n.Text[:min(len(n.Text), 500)]})
	}
	if err != nil {
		return "" // never: a notice has texts and numbers only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeNotice returns nil for what is not the value of a cookie with a notice.
func DecodeNotice(value string) *Notice {
	text, err := base64.RawURLEncoding.DecodeString(value)
	var n Notice
	if err != nil || json.Unmarshal(text, &n) != nil || n.Text == "" {
		return nil
	}
	return &n
}
