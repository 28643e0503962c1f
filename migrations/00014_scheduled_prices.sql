-- +goose Up

-- Prices that are to hold later. When its time comes a row becomes the next version in model_prices: until then nothing that takes the
-- newest version for the one in force may find it there.
create table scheduled_prices (
    id uuid primary key,
    model_id text not null references models (id),
    sheet jsonb not null,
    effective_from timestamptz not null,
    created_at timestamptz not null default clock_timestamp()
);
create index scheduled_prices_due_idx on scheduled_prices (effective_from);

-- +goose Down
drop table scheduled_prices;
