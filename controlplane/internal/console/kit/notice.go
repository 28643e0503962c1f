package kit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// Notice tells once, on the page after an action, how the action ended.
type Notice struct {
	// Kind is "good", "warn" or "bad".
	Kind string `json:"kind"`
	Text string `json:"text"`
	// Applied are the names of the proxies that have applied the change, Pending of those that may not have applied it
	// yet. There are none if the change does not concern proxies.
	Applied []string `json:"applied,omitempty"`
	Pending []string `json:"pending,omitempty"`
}

// Done is the notice of an action that concerns no proxy.
func Done(text string) *Notice { return &Notice{Kind: "good", Text: text} }

// Wait asks an operation to wait until the proxies have applied a change.
func Wait() *adminclient.Wait { return new(adminclient.WaitForApplied) }

// Applied is the notice of a change that was made with Wait, from the headers of the response.
func Applied(text string, header http.Header) *Notice {
	n := Done(text)
	n.Applied, n.Pending = proxies(header.Get("Applied-By")), proxies(header.Get("Applied-Pending"))
	switch header.Get("Applied") {
	case "true":
		if n.total() == 0 {
			n.Text += " No proxy is running that has to apply it."
		}
	case "false":
		n.Kind = "warn"
		if n.total() == 0 {
			n.Text += " Whether the proxies have applied it is not known; they do within seconds."
		}
	}
	return n
}

// proxies splits a list of names.
func proxies(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (n *Notice) total() int { return len(n.Applied) + len(n.Pending) }

// maxProxies bounds the names of proxies in a sentence.
const maxProxies = 12

func sentence(names []string) string {
	if further := len(names) - maxProxies; further > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxProxies], ", "), further)
	}
	return strings.Join(names, ", ")
}

// Progress tells which proxies have applied a change.
func (n *Notice) Progress() string {
	switch {
	case n.total() == 0:
		return ""
	case len(n.Pending) == 0 && len(n.Applied) == 1:
		return fmt.Sprintf("Applied by the one proxy, %s.", n.Applied[0])
	case len(n.Pending) == 0:
		return fmt.Sprintf("Applied by all %d proxies: %s.", len(n.Applied), sentence(n.Applied))
	case len(n.Applied) == 0:
		return fmt.Sprintf("Applied by none of %d proxies yet; %s will follow.", n.total(), sentence(n.Pending))
	default:
		return fmt.Sprintf(
			"Applied by %d of %d proxies: %s; %s will follow.",
			len(n.Applied),
			n.total(),
			sentence(n.Applied),
			sentence(n.Pending),
		)
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
