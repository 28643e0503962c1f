package gwctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/pricelist"
)

func (t *tool) catalogImport() *cobra.Command {
	var o pricelist.Options
	var markup string
	cmd := &cobra.Command{
		Use:   "import-prices <file>",
		Short: "Convert a public price list to a catalog for review",
		Args:  cobra.ExactArgs(1),
		Long: "Convert a public price list, a JSON file in the format of LiteLLM's model_prices_and_context_window.json, to a catalog " +
			"for review.\n" +
			"Prices are exact to the last digit; those of the service tiers priority and flex are converted, too. Entries " +
			"that cannot be converted are listed with the reason at the end of the output. Nothing is sent to a server.",
		Example: "  gwctl catalog import-prices prices.json --provider openai --model 'example-*' --markup 20% > proposal.yaml",
		RunE: func(_ *cobra.Command, args []string) error {
			var err error
			if o.Markup, err = pricelist.ParseMarkup(markup); err != nil {
				return usagef("--%w", err)
			}

			text, err := t.read(args[0])
			if err != nil {
				return err
			}

			proposal, err := pricelist.Read(text, o)
			if err != nil {
				return usagef("%s: %w", args[0], err)
			}

			out, err := proposal.YAML()
			if err != nil {
				return err
			}
			if _, err := t.cfg.Out.Write(out); err != nil {
				return fmt.Errorf("write: %w", err)
			}

			t.printErr("%d models converted, %d omissions; see the end of the output", len(proposal.Document.Models), len(proposal.Omitted))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&o.Providers, "provider", nil, "only models of these `providers`, named as in the list")
	cmd.Flags().StringSliceVar(&o.Models, "model", nil, "only models whose names match these `patterns`, such as 'example-*'")
	cmd.Flags().StringVar(&markup, "markup", "", "markup on every price: a `factor` such as 1.2, or a percentage such as 20%")
	cmd.Flags().StringVar(&o.Currency, "currency", "", "`currency` of the list (default USD)")

	return cmd
}
