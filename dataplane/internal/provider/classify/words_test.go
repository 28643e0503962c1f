package classify

import (
	"slices"
	"testing"
)

func TestSplitWords(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want []string
	}{
		{"maxTokens max_tokens", []string{"max", "tokens", "max", "tokens"}},
		{"it doesn't", []string{"it", "doesnt"}},
		{"余额不足", []string{"余", "额", "不", "足"}},
		{"APIキーが無効です", []string{"api", "キー", "が", "無", "効", "です"}},
		{"現在のプランでは", []string{"現", "在", "の", "プラン", "では"}},
		{"サーバーエラー", []string{"サーバーエラー"}},
		{"l'image n'est pas", []string{"l", "image", "n", "est", "pas"}},
		{"temperature는 0", []string{"temperature", "는", "0"}},
		{"Schlüssel ungültig", []string{"schlüssel", "ungültig"}},
	}
	for _, tt := range tests {
		if got := splitWords(tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q; want %q", tt.text, got, tt.want)
		}
	}
}
