package cloudsim

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// keys is how the metadata servers of AWS answer.
//
//nolint:tagliatelle // the names of AWS
type keys struct {
	Code            string    `json:"Code,omitempty"`
	AccessKeyID     string    `json:"AccessKeyId"`
	SecretAccessKey string    `json:"SecretAccessKey"`
	Token           string    `json:"Token"`
	Expiration      time.Time `json:"Expiration"`
}

func (c *Clouds) writeKeys(w http.ResponseWriter, how string) {
	id, secret, session, ends := c.issueKeys(how)
	writeJSON(w, http.StatusOK, keys{
		Code:            "Success",
		AccessKeyID:     id,
		SecretAccessKey: secret,
		Token:           session,
		Expiration:      ends.UTC(),
	})
}

const sessionOfInstance = "the-session-of-the-instance"

// instance is the metadata server of an instance, in its second version.
func (c *Clouds) instance(w http.ResponseWriter, r *http.Request) {
	const list = "/latest/meta-data/iam/security-credentials/"
	switch path := r.URL.Path; {
	case path == "/latest/api/token" && r.Method == http.MethodPut:
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		_, _ = io.WriteString(w, sessionOfInstance)
	case r.Header.Get("X-Aws-Ec2-Metadata-Token") != sessionOfInstance:
		http.Error(w, "token", http.StatusUnauthorized)
	case path == list:
		_, _ = io.WriteString(w, "role-of-the-instance")
	case path == list+"role-of-the-instance":
		c.writeKeys(w, "aws instance")
	default:
		http.NotFound(w, r)
	}
}

// container serves the keys of a container or pod.
func (c *Clouds) container(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != ContainerToken {
		http.Error(w, "token", http.StatusUnauthorized)
		return
	}
	c.writeKeys(w, "aws container")
}

// sts serves assumed roles.
func (c *Clouds) sts(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	action := r.PostFormValue("Action")
	if r.PostFormValue("RoleArn") != Role || r.PostFormValue("RoleSessionName") == "" {
		stsError(w, "AccessDenied", "not authorized to perform: sts:AssumeRole")
		return
	}
	switch action {
	case "AssumeRole":
		id, err := c.Verify(r, body, "sts", regionOfSTS(r.Host), time.Now())
		if err != nil {
			stsError(w, "SignatureDoesNotMatch", err.Error())
			return
		}
		how := "aws role by " + id
		if external := r.PostFormValue("ExternalId"); external != "" {
			how += " with " + external
		}
		c.writeRole(w, action, how)
	case "AssumeRoleWithWebIdentity":
		if r.PostFormValue("WebIdentityToken") != Identity {
			stsError(w, "InvalidIdentityToken", "the token is not known")
			return
		}
		c.writeRole(w, action, "aws web identity")
	default:
		stsError(w, "InvalidAction", action)
	}
}

func regionOfSTS(host string) string {
	region, _, _ := strings.Cut(strings.TrimPrefix(host, "sts."), ".")
	if region == "amazonaws" {
		return "us-east-1"
	}
	return region
}

func (c *Clouds) writeRole(w http.ResponseWriter, action, how string) {
	id, secret, session, ends := c.issueKeys(how)
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials>`+
		`<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken>`+
		`<Expiration>%s</Expiration></Credentials>`+
		`<AssumedRoleUser><Arn>%s</Arn><AssumedRoleId>ARO:modelgateway</AssumedRoleId></AssumedRoleUser></%[1]sResult></%[1]sResponse>`,
		action, id, secret, session, ends.UTC().Format(time.RFC3339), Role)
}

func stsError(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `<ErrorResponse><Error><Type>Sender</Type><Code>`+code+`</Code><Message>`)
	_ = xml.EscapeText(w, []byte(message))
	_, _ = io.WriteString(w, `</Message></Error></ErrorResponse>`)
}

// RefuseSignature answers a call of Bedrock that is not signed as it must be.
func RefuseSignature(w http.ResponseWriter, err error) {
	code := "InvalidSignatureException"
	if strings.Contains(err.Error(), "ended") {
		code = "ExpiredTokenException"
	}
	w.Header().Set("X-Amzn-Errortype", code)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"message":"The security token included in the request is invalid or expired"}`)
}
