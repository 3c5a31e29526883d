DROP INDEX CONCURRENTLY payments_refunded;
