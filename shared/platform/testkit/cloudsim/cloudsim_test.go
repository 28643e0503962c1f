package cloudsim

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The request and its signature are those that AWS publishes as an example of the signature of a list of users.
func TestVerifyAcceptsTheExampleOfAWS(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	r.Header.Set("X-Amz-Date", "20150830T123600Z")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "+
		"SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")
	c := &Clouds{
		secrets: map[string]string{"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}, // gitleaks:allow
	}
	if _, err := c.Verify(r, nil, "iam", "us-east-1", time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("got %v; want an unknown access key, because it has no session", err)
	}
	c.permanent = map[string]string{"AKIDEXAMPLE": c.secrets["AKIDEXAMPLE"]}
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	if id, err := c.Verify(r, nil, "iam", "us-east-1", at); err != nil || id != "AKIDEXAMPLE" {
		t.Errorf("got %q, %v", id, err)
	}
	for name, change := range map[string]func(){
		"another time":    func() { at = at.Add(time.Hour) },
		"another query":   func() { r.URL.RawQuery += "&A=b" },
		"another header":  func() { r.Header.Set("Content-Type", "text/plain") },
		"an added header": func() { r.Header.Set("X-Amz-Target", "x") },
	} {
		url, header, then := *r.URL, r.Header.Clone(), at
		change()
		if _, err := c.Verify(r, nil, "iam", "us-east-1", at); err == nil {
			t.Errorf("%s: accepted", name)
		}
		r.URL, r.Header, at = &url, header, then
	}
	if _, err := c.Verify(r, []byte("body"), "iam", "us-east-1", at); err == nil {
		t.Error("another body: accepted")
	}
}

func TestFailAndRevoke(t *testing.T) {
	t.Parallel()
	c := &Clouds{}
	ask := func() *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+OAuthHost+"/token",
			strings.NewReader("grant_type=client_credentials&client_id="+ClientID+"&client_secret="+ClientSecret))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := c.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	response := ask()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), "token-1") || !c.IsValid("token-1") {
		t.Errorf("got %d %s, %v", response.StatusCode, text, err)
	}
	c.Revoke()
	if c.IsValid("token-1") {
		t.Error("the token is still valid")
	}
	c.Fail(true)
	if status := ask().StatusCode; status != http.StatusServiceUnavailable {
		t.Errorf("got %d", status)
	}
}
