-- What shows that Postgres has lost commits: a copy that was restored, or a
-- standby that had not received everything.

-- +goose Up

-- When the loss of the current epoch was declared, and from when on usage is settled once more.
alter table meta add column lost_at timestamptz;
alter table meta add column replay_from timestamptz;

-- Counts the looks of the control planes, who remember the count elsewhere. A table of its own: meta is locked by every change.
create table heartbeat (
    one boolean primary key default true check (one),
    beat bigint not null
) with (fillfactor = 10);
insert into heartbeat (beat) values (0);

-- +goose Down
drop table heartbeat;
alter table meta drop column replay_from;
alter table meta drop column lost_at;
