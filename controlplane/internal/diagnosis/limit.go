package diagnosis

// MaxUselessLimits bounds UselessLimits.
const MaxUselessLimits = 50

// UselessLimit is a limit, a key or a balance that lets no request through, or that applies to none.
type UselessLimit struct {
	// ID is that of the limit or the key.
	ID string
	// Problem is one of the constants.
	Problem string
	// OfKey means that it is a key: its spend limit or its models are meant. OfAccount means that it is the balance of an account.
	OfKey, OfAccount bool
}

// The problems of limits.
const (
	// NoAmount: the amount is zero.
	NoAmount = "amount"
	// NoModel: the account may use none of its models, as they are not in the catalog, not enabled, or not granted.
	NoModel = "models"
	// LowRaise: it is raised to less than its amount.
	LowRaise = "raise"
	// LowAmount: the amount is less than the smallest request with any of its models costs.
	LowAmount = "low"
)

// checkLimits reports the limits and keys that can hardly be meant as they are.
func checkLimits(useless []UselessLimit) []Finding {
	add := collect("limits")
	for _, l := range useless {
		switch {
		case l.Problem == NoAmount && l.OfKey:
			add.check(true, Warning, "amount", l.ID, "the spend limit of the key is 0", "Every request with the key is refused with 403.",
				"If that is meant, pause the key; otherwise set an amount: `gwctl keys update`.")
		case l.Problem == NoAmount:
			add.check(true, Warning, "amount", l.ID, "the amount of the limit is 0",
				"Every request that it applies to is refused with 403.",
				"If that is meant, pause the keys or suspend the account; otherwise set an amount: `gwctl limits update`.")
		case l.Problem == LowAmount && l.OfAccount:
			add.check(true, Warning, "low", l.ID, "the balance of the account covers no request: each model that it may use costs more",
				"Every request is refused with 402.", "Book more (`gwctl payments create`), or grant a model that costs less.")
		case l.Problem == LowAmount:
			add.check(true, Warning, "low", l.ID, "the amount covers no request: each model that it allows costs more",
				"Every request that it applies to is refused with 403.",
				"Set a higher amount (`gwctl keys update`, `gwctl limits update`), or allow a model that costs less.")
		case l.Problem == LowRaise:
			add.check(true, Warning, "raise", l.ID, "the limit is raised to less than its amount",
				"Until the raise ends, requests are refused that the amount would let through.",
				"End the raise or set a higher one: `gwctl limits update`.")
		case l.OfKey:
			add.check(true, Warning, "models", l.ID, "the account may use none of the models of the key",
				"Every request with the key gets 404 `model_not_found`.",
				"Correct the names (`gwctl keys update`; a prefix ends with `*`), or enable or grant the models.")
		default:
			add.check(true, Warning, "models", l.ID, "the limit applies to nothing: the account may use none of its models",
				"Requests for other models are not limited by it.",
				"Correct the names (a prefix ends with `*`), or enable or grant the models.")
		}
	}

	if len(useless) == 0 {
		add.check(false, OK, "amount", "", "limits let requests through, and accounts may use their models and those of keys", "", "")
	}

	return add.findings
}
