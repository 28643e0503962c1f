package accountapi

import (
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/price"
)

// multipliers parses the price multipliers of an account; nil if there are none. It reports every
// invalid one.
func multipliers(own *gen.Multiplier, models *gen.ModelMultipliers) (*price.Multiplier, *map[string]price.Multiplier, error) {
	var invalid validation.Errors
	read := func(path, text string) price.Multiplier {
		m, err := price.ParseMultiplier(text)
		if err != nil {
			invalid.Add(path, "must be a decimal above 0 and at most %s with at most six places", price.MaxMultiplier)
		}
		return m
	}

	var account *price.Multiplier
	if own != nil {
		m := read("price_multiplier", *own)
		account = &m
	}

	if models == nil {
		return account, nil, invalid.Err()
	}

	single := make(map[string]price.Multiplier, len(*models))
	for model, text := range *models {
		single[model] = read("model_multipliers["+model+"]", text)
	}

	return account, &single, invalid.Err()
}

func multipliersView(read map[string]price.Multiplier) map[string]string {
	view := make(map[string]string, len(read))
	for model, m := range read {
		view[model] = m.String()
	}
	return view
}
