package catalogkv_test

import (
	"testing"

	"modelgateway/shared/catalogkv"
)

func TestAddressesOfAProviderAndItsRoutes(t *testing.T) {
	t.Parallel()
	address := func(path, streamPath string, query ...string) catalogkv.Address {
		a := catalogkv.Address{Path: path, StreamPath: streamPath}
		for i := 0; i < len(query); i += 2 {
			if a.Query == nil {
				a.Query = map[string]string{}
			}
			a.Query[query[i]] = query[i+1]
		}
		return a
	}
	tests := []struct {
		name            string
		provider, route catalogkv.Addresses
		model           string
		want, stream    string
	}{
		{
			name: "without an address", model: "m",
			want: "https://p.example/base/v1/chat/completions", stream: "https://p.example/base/v1/chat/completions",
		},
		{
			name: "of another format", model: "m", provider: catalogkv.Addresses{catalogkv.Messages: address("/other", "")},
			want: "https://p.example/base/v1/chat/completions", stream: "https://p.example/base/v1/chat/completions",
		},
		{
			name: "path of the provider", model: "m", provider: catalogkv.Addresses{catalogkv.Chat: address("/v4/chat", "")},
			want: "https://p.example/base/v4/chat", stream: "https://p.example/base/v4/chat",
		},
		{
			name: "query alone, in the order of its names", model: "m",
			provider: catalogkv.Addresses{catalogkv.Chat: address("", "", "b", "ü&", "a", "preview")},
			want:     "https://p.example/base/v1/chat/completions?a=preview&b=%C3%BC%26", stream: "https://p.example/base/v1/chat/completions?a=preview&b=%C3%BC%26",
		},
		{
			name: "model in the path, and another for streams", model: "arn:x/y z?@#%",
			provider: catalogkv.Addresses{catalogkv.Chat: address("/m/{model}:raw", "/m/{model}:stream/{model}")},
			want:     "https://p.example/base/m/arn:x%2Fy%20z%3F@%23%25:raw", stream: "https://p.example/base/m/arn:x%2Fy%20z%3F@%23%25:stream/arn:x%2Fy%20z%3F@%23%25",
		},
		{
			name: "the route wins as a whole", model: "m",
			provider: catalogkv.Addresses{catalogkv.Chat: address("/p", "/ps", "q", "1")}, route: catalogkv.Addresses{catalogkv.Chat: address("/r", "")},
			want: "https://p.example/base/r", stream: "https://p.example/base/r",
		},
		{
			name: "another path for streams alone", model: "m", route: catalogkv.Addresses{catalogkv.Chat: address("", "/s")},
			want: "https://p.example/base/v1/chat/completions", stream: "https://p.example/base/s",
		},
	}
	for _, tt := range tests {
		p := catalogkv.Provider{BaseURL: "https://p.example/base", Addresses: tt.provider}
		r := catalogkv.Route{UpstreamModel: tt.model, Addresses: tt.route}
		if got := p.URL(p.Target(&r, catalogkv.Chat, false)); got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.name, got, tt.want)
		}
		if got := p.URL(p.Target(&r, catalogkv.Chat, true)); got != tt.stream {
			t.Errorf("%s, as a stream: got %s; want %s", tt.name, got, tt.stream)
		}
	}
}
