// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace openmana::gdma {

template <typename T>
class Handle;
template <typename T>
class Weak;

/// An object that lives as long as somebody holds it, and knows how many do. Handles come and go on
/// the function's executor only: the counts are plain numbers, and a visitor uses what others hold.
class Held {
public:
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    [[nodiscard]] std::uint32_t holders() const { return holders_; }

protected:
    Held() = default;
    ~Held() = default;

private:
    template <typename T>
    friend class Handle;
    template <typename T>
    friend class Weak;
    mutable std::uint32_t holders_ = 0;
    mutable std::uint32_t watchers_ = 0;
};

/// Keeps an object: one pointer, which what is fast reads as it would read a reference.
template <typename T>
class Handle {
public:
    Handle() = default;
    Handle(std::nullptr_t) {}
    Handle(const Handle& other) : Handle(other.object_) {}
    Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Handle& operator=(Handle other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Handle() {
        if (object_ == nullptr || --held().holders_ != 0) return;
        if (held().watchers_ == 0) delete object_;
    }

    [[nodiscard]] T* get() const { return object_; }
    T& operator*() const { return *object_; }
    T* operator->() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }
    friend bool operator==(const Handle&, const Handle&) = default;

private:
    template <typename U, typename... Args>
    friend Handle<U> make_handle(Args&&... args);
    friend class Weak<T>;
    explicit Handle(T* object) : object_(object) {
        if (object_ != nullptr) ++held().holders_;
    }
    [[nodiscard]] const Held& held() const { return *object_; }
    T* object_ = nullptr;
};

template <typename T, typename... Args>
[[nodiscard]] Handle<T> make_handle(Args&&... args) {
    return Handle<T>(new T(std::forward<Args>(args)...));
}

/// Remembers an object without keeping it.
template <typename T>
class Weak {
    static_assert(std::is_trivially_destructible_v<T>,
                  "its memory stays until nobody remembers it");

public:
    Weak() = default;
    explicit Weak(const Handle<T>& handle) : object_(handle.get()) {
        if (object_ != nullptr) ++held().watchers_;
    }
    Weak(const Weak&) = delete;
    Weak(Weak&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Weak& operator=(Weak&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Weak() {
        if (object_ == nullptr || --held().watchers_ != 0) return;
        if (held().holders_ == 0) delete object_;
    }
    /// Null if nobody holds it any more.
    [[nodiscard]] Handle<T> lock() const {
        return object_ != nullptr && held().holders_ != 0 ? Handle<T>(object_) : Handle<T>();
    }

private:
    [[nodiscard]] const Held& held() const { return *object_; }
    T* object_ = nullptr;
};

}  // namespace openmana::gdma
