package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/upstream/credential"
)

// signer signs calls to AWS. It keeps the keys that it derives from an access key for a day, a region and a service.
var signer = v4.NewSigner()

// sign returns the headers that sign a call.
func sign(ctx context.Context, base *url.URL, call *provider.Call, token *credential.Token, now time.Time) (http.Header, error) {
	target := targetOf(base, call)
	request := &http.Request{
		Method: methodOf(call),
		URL:    &target,
		Host:   target.Host,
		Header: http.Header{},
	}
	digest := emptyDigest
	if call.Body != nil {
		request.ContentLength = int64(call.Body.Len())
		digest = bodyDigest(call.Body)
	}
	if call.ContentType != "" {
		request.Header["Content-Type"] = []string{call.ContentType}
	}
	if err := signer.SignHTTP(ctx, *token.Keys, request, digest, token.Service, token.Region, now); err != nil {
		return nil, fmt.Errorf("upstream: sign the call: %w", err)
	}
	delete(request.Header, "Content-Type") // the head has it
	return request.Header, nil
}

// emptyDigest is the digest of no body.
const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func bodyDigest(body *provider.Body) string {
	digest := sha256.New()
	for _, part := range body.AppendParts(nil) {
		digest.Write(part) // never fails
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(digest.Sum(sum[:0]))
}
