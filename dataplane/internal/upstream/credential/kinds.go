package credential

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"modelgateway/shared/catalogkv"
)

// fetcher returns the function that asks for a token of a kind, nil for a kind that this version does not know. Each call
// makes new objects of the library: the old ones have caches of their own, which would return the old token, and files and
// variables of the environment may have changed.
func (s *Sources) fetcher(kind catalogkv.CredentialKind, parameters map[string]string) fetchFunc {
	switch kind {
	case catalogkv.OAuthCredential:
		return s.oauth(parameters)
	case catalogkv.GoogleCredential:
		return s.google(parameters)
	case catalogkv.AzureCredential:
		return s.azure(parameters)
	case catalogkv.AWSCredential:
		return s.aws(parameters)
	case catalogkv.SecretCredential:
	}
	return nil
}

func (s *Sources) oauth(p map[string]string) fetchFunc {
	cfg := clientcredentials.Config{
		ClientID:       p["client_id"],
		ClientSecret:   p["client_secret"],
		TokenURL:       p["token_url"],
		Scopes:         strings.Fields(p["scopes"]),
		EndpointParams: url.Values{},
	}
	switch p["auth_style"] {
	case catalogkv.AuthStyleHeader:
		cfg.AuthStyle = oauth2.AuthStyleInHeader
	case catalogkv.AuthStyleForm:
		cfg.AuthStyle = oauth2.AuthStyleInParams
	}
	for name, value := range p {
		if member, ok := strings.CutPrefix(name, catalogkv.FormParameter); ok {
			cfg.EndpointParams.Set(member, value)
		}
	}
	return func(ctx context.Context) (Token, error) {
		token, err := cfg.Token(context.WithValue(ctx, oauth2.HTTPClient, s.client))
		if err != nil {
			return Token{}, fmt.Errorf("credential: get an access token: %w", err)
		}
		return Token{Text: token.AccessToken, Expires: token.Expiry}, nil
	}
}

// googleScope is the scope of a token that is not limited to a service.
const googleScope = "https://www.googleapis.com/auth/cloud-platform"

func (s *Sources) google(p map[string]string) fetchFunc {
	return func(ctx context.Context) (Token, error) {
		options := &credentials.DetectOptions{
			Scopes: strings.Fields(cmp.Or(p["scopes"], googleScope)),
			Client: s.client,
		}
		found, err := googleCredentials(p["key"], options)
		if err != nil {
			return Token{}, fmt.Errorf("credential: find the credentials of Google: %w", err)
		}
		token, err := found.Token(ctx)
		if err != nil {
			return Token{}, fmt.Errorf("credential: get an access token of Google: %w", err)
		}
		return Token{Text: token.Value, Expires: token.Expiry}, nil
	}
}

// googleCredentials returns the credentials of a service account, or without a key those of the process.
func googleCredentials(key string, options *credentials.DetectOptions) (*auth.Credentials, error) {
	if key == "" {
		return credentials.DetectDefault(options) //nolint:wrapcheck // wrapped by the caller
	}
	return credentials.NewCredentialsFromJSON(credentials.ServiceAccount, []byte(key), options) //nolint:wrapcheck // wrapped by the caller
}

// azureScope is the scope of tokens for Azure OpenAI and the other AI services.
const azureScope = "https://cognitiveservices.azure.com/.default"

func (s *Sources) azure(p map[string]string) fetchFunc {
	return func(ctx context.Context) (Token, error) {
		identity, err := s.azureIdentity(p)
		if err != nil {
			return Token{}, fmt.Errorf("credential: find the identity of Azure: %w", err)
		}
		token, err := identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{cmp.Or(p["scope"], azureScope)}})
		if err != nil {
			return Token{}, fmt.Errorf("credential: get an access token of Azure: %w", err)
		}
		return Token{Text: token.Token, Expires: token.ExpiresOn}, nil
	}
}

// azureIdentity returns the identity of an application with a secret, or the one of the process: a workload identity where
// the cluster provides one, otherwise a managed identity.
func (s *Sources) azureIdentity(p map[string]string) (azcore.TokenCredential, error) {
	options := azcore.ClientOptions{Transport: s.client, Retry: policy.RetryOptions{MaxRetries: -1}}
	ownAuthority := p["authority"] != ""
	if ownAuthority {
		options.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: p["authority"]}
	}

	switch {
	case p["client_secret"] != "":
		return azidentity.NewClientSecretCredential( //nolint:wrapcheck // wrapped by the caller
			p["tenant_id"], p["client_id"], p["client_secret"],
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: ownAuthority},
		)
	case os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ //nolint:wrapcheck // as above
			ClientOptions:            options,
			ClientID:                 p["client_id"],
			TenantID:                 p["tenant_id"],
			DisableInstanceDiscovery: ownAuthority,
		})
	}

	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if p["client_id"] != "" {
		managed.ID = azidentity.ClientID(p["client_id"])
	}
	return azidentity.NewManagedIdentityCredential(managed) //nolint:wrapcheck // wrapped by the caller
}

// awsService is the service of the models at AWS, for which calls are signed.
const awsService = "bedrock"

// roleSession is the name under which an assumed role appears in the logs of AWS.
const roleSession = "modelgateway"

func (s *Sources) aws(p map[string]string) fetchFunc {
	return func(ctx context.Context) (Token, error) {
		keys, err := s.awsKeys(ctx, p)
		if err != nil {
			return Token{}, fmt.Errorf("credential: get keys of AWS: %w", err)
		}
		token := Token{Keys: &keys, Region: p["region"], Service: cmp.Or(p["service"], awsService)}
		if keys.CanExpire {
			token.Expires = keys.Expires
		}
		return token, nil
	}
}

// awsKeys returns the keys of the parameters or of the process (a web identity, a container or an instance), or with them
// those of an assumed role.
func (s *Sources) awsKeys(ctx context.Context, p map[string]string) (aws.Credentials, error) {
	var base aws.CredentialsProvider = awscredentials.NewStaticCredentialsProvider(
		p["access_key_id"], p["secret_access_key"], p["session_token"],
	)
	client := sts.Options{Region: p["region"], HTTPClient: s.awsClient, RetryMaxAttempts: 1}
	if p["access_key_id"] == "" {
		found, err := config.LoadDefaultConfig(
			ctx, config.WithRegion(p["region"]), config.WithHTTPClient(s.awsClient), config.WithRetryMaxAttempts(1),
			config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = s.awsClient }),
		)
		if err != nil {
			return aws.Credentials{}, err //nolint:wrapcheck // wrapped by the caller
		}
		base, client.HTTPClient = found.Credentials, found.HTTPClient
	}
	if p["role_arn"] == "" {
		return base.Retrieve(ctx) //nolint:wrapcheck // wrapped by the caller
	}

	client.Credentials = base
	role := stscreds.NewAssumeRoleProvider(sts.New(client), p["role_arn"], func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = roleSession
		if p["external_id"] != "" {
			o.ExternalID = aws.String(p["external_id"])
		}
	})
	return role.Retrieve(ctx) //nolint:wrapcheck // wrapped by the caller
}
