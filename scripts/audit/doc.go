// Package audit holds the tests of the checks for secrets and known vulnerabilities
// (make lint/secrets, make lint/vulnerabilities).
package audit
